"""Makes docs/report.png, the picture in the README: the report of the sample job as a browser shows it.

python docs/make_picture.py   (needs the extra `plots`, and chromium)
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import tracekit as tk

DOCS = Path(__file__).parent
SIZE = "1120,735"


def main() -> None:
    """Write the report to a temporary folder and photograph its top."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("needs chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        tk.analyze(DOCS.parent / "sample_traces" / "gpu-tp2-pp2-dp2").report(page)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=60000"]
        command = [chromium, *flags, f"--user-data-dir={folder}/profile", f"--window-size={SIZE}"]
        shot = Path(folder) / "shot.png"
        command += [f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - a browser on our own page
        few = Image.open(shot).convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
        few.save(DOCS / "report.png", optimize=True)


if __name__ == "__main__":
    main()
