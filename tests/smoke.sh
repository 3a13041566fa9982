#!/usr/bin/env bash
# Try every part of an installed regard outside of its source tree.
set -euo pipefail
here=$(pwd)
regard --version
python -m regard --version
python - <<'PYTHON'
from pathlib import Path

import regard
from regard.interop.model_names import bundled

home = Path(regard.__file__).parent
assert "site-packages" in str(home), home
assert (home / "py.typed").is_file()
assert (home / "server" / "page" / "index.html").is_file()
assert (home / "recipes" / "dates.toml").is_file()
assert "dates" in bundled(), bundled()
print("files:", sum(path.is_file() for path in home.rglob("*")))
PYTHON
regard models
regard work | tail -4
regard translate dates --beam 1 <<< "12 août 2021" | tee "$here/date.txt"
grep -qx "2021-08-12" "$here/date.txt"
regard show dates "12 août 2021" | head -4
regard figure pattern dates "12 août 2021" -o "$here/pattern.png"
regard figure masks --language ko -o "$here/masks.svg"
regard trace dates "12 août 2021" -o "$here/trace.html"
ls -l "$here"/pattern.png "$here"/masks.svg "$here"/trace.html
regard doctor dates
PYTHONUNBUFFERED=1 regard serve dates --port 0 > "$here/serve.txt" 2>&1 &
server=$!
for _ in $(seq 60); do grep -q "http://" "$here/serve.txt" && break; sleep 1; done
address=$(grep -o 'http://[^ ]*' "$here/serve.txt")
python -c "import sys, urllib.request as u; page = u.urlopen(sys.argv[1]).read(); assert b'regard' in page; print('the page:', len(page), 'bytes')" "$address"
kill -INT "$server"
wait "$server" || true
echo "Everything works."
