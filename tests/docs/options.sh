# docs/reference/options.md has every option that --help prints, and none twice.
. "$(dirname "$0")/../cli/lib.bash"
page=$(dirname "$self")/../../docs/reference/options.md
[ -e "$page" ] || { echo "no pages in this tree"; exit 77; }

for command in $("$sotto" help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    succeeds "$sotto" "$command" --help all
    sed -n 's/^  --\([^ ]*\).*/\1/p' out | sed "/\./!s/^/$command: /"
done | LC_ALL=C sort -u >printed
[ "$(wc -l <printed)" -ge 250 ] || die "only $(wc -l <printed) options in --help all of all commands"
sed -n 's/^### //p' "$page" | LC_ALL=C sort >written
diff printed written || die "options of --help (<) and of options.md (>) differ"
# Anchors: letters, digits, - and _ in small letters.
tr A-Z a-z <written | sed 's/[^a-z0-9_ -]//g; s/ /-/g' | sort | uniq -d >twice
[ ! -s twice ] || die "options with the same anchor: $(cat twice)"
