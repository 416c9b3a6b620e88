#!/usr/bin/env bash
# Monthly reports by one recipe under one ledger: the table of each month is released, and a fourth report that no longer
# fits is refused before a row is read.
# Run: bash examples/monthly_report.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$(mktemp -d)"

for month in 2026-01 2026-02 2026-03 2026-04; do
  # made-up stays; a real report would name the table of the month
  {
    echo patient,ward,days
    for patient in $(seq 300); do
      echo "p$patient,$(echo A B B C | cut -d' ' -f$((1 + (patient + ${month#2026-}) % 4))),$((patient * 13 % 31))"
    done
  } >"stays-$month.csv"
  wpriv release "$here/monthly_report.yaml" --data "stays-$month.csv" --out "report-$month" \
    --ledger hospital.jsonl --max-eps 1.6 || echo "$month: exit code $?"
done

wpriv budget --history hospital.jsonl --delta 0
