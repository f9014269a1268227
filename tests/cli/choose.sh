# The table of docs/choose.md's rule of thumb has today's numbers. Other claims of the page are expectations in
# experiments/choose/*.ini, which the page's own commands run.
. "$(dirname "$0")/lib.bash"
root=$(dirname "$self")/../..
files=$root/experiments/choose
page=$root/docs/choose.md

# The page's test runs the comparisons, so the page has to have their commands.
for file in "$files"/*.ini; do
    grep -q "^\$ .*experiments/choose/${file##*/}" "$page" || die "docs/choose.md does not run ${file##*/}"
done

# Rows of the page begin with r; a cell is a share in per cent, of acco the batch in multiples of ddp's.
rows=0
while IFS='|' read -r _ r cells; do
    r=${r// /} link=$(awk -v r="$r" 'BEGIN {print 1.867 / r}')Gbit/s
    succeeds "$sotto" compare "$files/rule.ini" --out="r$r" --link.inter="$link"
    awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i; next}
             $1 == "ddp" {tokens = $at["tokens"]}
             {printf "| %.2f ", $1 == "acco" ? $at["tokens"] / tokens : 100 * $at["exposed_share"]}' "r$r/table.csv" >now
    awk -v r="$r" -v page="|$cells" 'function apart(a, b) {return a > b ? a - b : b - a}
        {n = split(page, p, "|"); if (split($0, v, "|") != n - 1) {print "r = " r ": another number of methods"; exit 1}
         for (i = 2; i < n; i++) if (apart(p[i], v[i]) > 1.5 && apart(p[i], v[i]) > 0.05 * p[i]) {
             print "r = " r ", cell " i - 1 ": the page has " p[i] ", the run " v[i]; exit 1}}' now || die "docs/choose.md: rule of thumb"
    rows=$((rows + 1))
done < <(grep -E '^\| [0-9.]+ \|( [0-9.]+ \|){10}$' "$page")
[ $rows -ge 10 ] || die "the page has $rows rows of the rule of thumb"
