#!/usr/bin/env python3
"""Make `gpu-tp2-pp2-dp2`: a simulated 8-GPU training job with its truth; the same bytes come out on every run.

    python sample_traces/generate_gpu.py [OUTPUT]

The same as `tracekit simulate --run sample_traces/gpu-tp2-pp2-dp2.toml -o OUTPUT`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tracekit.commands import main

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    output = sys.argv[1] if len(sys.argv) > 1 else str(HERE / "gpu-tp2-pp2-dp2")
    main(["simulate", "--run", str(HERE / "gpu-tp2-pp2-dp2.toml"), "-o", output, "--force"])
