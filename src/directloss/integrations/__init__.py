"""directloss inside other libraries, one file each, which imports its library on first use."""
