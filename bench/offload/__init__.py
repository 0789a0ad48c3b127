"""Near the storage: what each sample's smallest exact form saves, over links of all speeds (`python -m bench.offload`)."""
