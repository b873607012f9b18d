"""Rules + `RankTrace` → `LabelledRank`: activity classes, communication calls, steps and labels."""
