"""Hugging Face Trainer: a tiny BERT, from scratch, learns to find rare texts by average precision.

python examples/trainer_ap.py
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from directloss.integrations.transformers import TrainerLoss, TrainerMetric

WORDS, LENGTH = 50, 12


def texts(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Draw texts; about one in seven is positive: word 7 comes before word 11."""
    draw = torch.Generator().manual_seed(seed)
    words = torch.randint(12, WORDS, (count, LENGTH), generator=draw)
    places = torch.rand(count, LENGTH, generator=draw).argsort(1)[:, :2]
    present = torch.rand(count, 2, generator=draw) < 0.5
    for column, word in enumerate((7, 11)):
        rows = present[:, column].nonzero().squeeze(1)
        words[rows, places[rows, column]] = word
    label = present.all(1) & (places[:, 0] < places[:, 1])
    return [{"input_ids": row, "labels": y} for row, y in zip(words, label.long(), strict=True)]


def main() -> None:
    """Train, evaluating before and after."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            BertForSequenceClassification(config),
            TrainingArguments(
                folder, num_train_epochs=10, per_device_train_batch_size=64, per_device_eval_batch_size=500,
                learning_rate=3e-3, report_to=[],
                save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True, seed=0,
            ),
            train_dataset=texts(1280, 0),
            eval_dataset=texts(1000, 1),
            compute_loss_func=TrainerLoss("ap"),
            compute_metrics=TrainerMetric("ap"),
        )  # fmt: skip
        before = trainer.evaluate()["eval_ap"]
        trainer.train()
        after = trainer.evaluate()["eval_ap"]
    print(f"validation AP: {before:.3f} before, {after:.3f} after training")


if __name__ == "__main__":
    main()
