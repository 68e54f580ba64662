"""sentence-transformers: a tiny cross-encoder trained on NDCG and a tiny bi-encoder trained on MRR, from scratch.

Both losses are for the trainers of the package, too: ``CrossEncoderTrainer(model, loss=CrossEncoderLoss(model))`` and
``SentenceTransformerTrainer(model, loss=BiEncoderLoss(model))``.

python examples/sentence_ranking.py
"""

import random
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

import directloss as dl

TOPICS = [[f"t{topic}w{word}" for word in range(4)] for topic in range(8)]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]


class CrossEncoderLoss(nn.Module):
    """NDCG of the documents of each query. Columns as for `LambdaLoss`: query, list of documents, list of grades."""

    def __init__(self, model: CrossEncoder, k: int = 10) -> None:
        super().__init__()
        self.model, self.ranking = model, dl.DirectLoss(dl.tasks.GradedNDCG(k))

    def forward(self, inputs: list[Any], labels: list[Tensor], **options: Any) -> Tensor:
        """The mean loss over the queries of a batch."""
        queries, documents = inputs
        sizes = [len(texts) for texts in documents]
        pairs = [(query, text) for query, texts in zip(queries, documents, strict=True) for text in texts]
        features = self.model.preprocess(pairs, **options)
        features = {name: each.to(self.model.device) for name, each in features.items() if isinstance(each, Tensor)}
        scores = pad_sequence(self.model(features)["scores"].flatten().float().split(sizes), batch_first=True)
        grades = pad_sequence([each.float() for each in labels], batch_first=True).to(scores.device)
        mask = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
        return self.ranking(scores, grades, mask.to(scores.device))


class BiEncoderLoss(nn.Module):
    """MRR of the documents of the batch for each anchor. Columns as for `MultipleNegativesRankingLoss`: anchor,
    positive, and any number of negatives.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model, self.ranking = model, dl.RetrievalLoss("mrr")

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Any = None) -> Tensor:
        """The mean loss over the anchors of a batch."""
        anchors, *documents = (self.model(features)["sentence_embedding"] for features in sentence_features)
        number = torch.arange(len(anchors), device=anchors.device)
        names = torch.cat([number, *(torch.full_like(number, -1) for _ in documents[1:])])  # -1 for negatives
        return self.ranking(anchors, number, ref_emb=torch.cat(documents), ref_labels=names)


def saved(folder: Path, kind: type, **more: int) -> str:
    """Save a tiny model with its tokenizer and return the folder."""
    words = {word: number for number, word in enumerate([*SPECIAL, *(w for topic in TOPICS for w in topic)])}
    plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )
    config = BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, **more,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    kind(config).save_pretrained(folder)
    return str(folder)


def text(topic: int, draw: random.Random) -> str:
    """Draw two words of a topic."""
    return " ".join(draw.sample(TOPICS[topic], 2))


def cross_encoder(folder: Path, draw: random.Random) -> tuple[float, float]:
    """Rank lists of two to six documents; topic 0 is more relevant than topic 1, the others are irrelevant."""
    model = CrossEncoder(saved(folder, BertForSequenceClassification, num_labels=1), device="cpu")
    loss_fn = CrossEncoderLoss(model, k=3)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    values = []
    for _ in range(40):
        topics = [[draw.randrange(2), *draw.sample(range(2, 8), draw.randint(1, 5))] for _ in range(8)]
        queries = [text(draw.randrange(8), draw) for _ in topics]
        documents = [[text(topic, draw) for topic in own] for own in topics]
        labels = [torch.tensor([max(2 - topic, 0) for topic in own]) for own in topics]
        optimizer.zero_grad()
        loss = loss_fn([queries, documents], labels)
        loss.backward()
        optimizer.step()
        values.append(1 - loss.item())
    return sum(values[:10]) / 10, sum(values[-10:]) / 10


def bi_encoder(folder: Path, draw: random.Random) -> tuple[float, float]:
    """Match questions on topics 0 to 3 with answers on topics 4 to 7; the other answers are the negatives."""
    model = SentenceTransformer(saved(folder, BertModel), device="cpu")
    loss_fn = BiEncoderLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    values = []
    for _ in range(40):
        columns = [[text(topic + shift, draw) for topic in range(4)] for shift in (0, 4)]
        optimizer.zero_grad()
        loss = loss_fn([model.preprocess(texts) for texts in columns])
        loss.backward()
        optimizer.step()
        values.append(1 - loss.item())
    return sum(values[:10]) / 10, sum(values[-10:]) / 10


def main() -> None:
    """Train both and print their metrics."""
    torch.manual_seed(0)
    transformers.logging.disable_progress_bar()
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, train in (("cross-encoder, NDCG@3", cross_encoder), ("bi-encoder, MRR", bi_encoder)):
            before, after = train(Path(folder) / name.split(",")[0], draw)
            print(f"{name}: {before:.3f} in the first ten steps, {after:.3f} in the last")


if __name__ == "__main__":
    main()
