# What the scripts that draw figures share; read by them, not run.
#
#   draw_from RESULTS FOLDER    sets $results, $folder, which it makes, and $work, a folder that goes when the script ends
#   column FILE NAME            run and value of a table's column
draw_from() {
    results=$1 folder=$2
    mkdir -p "$folder"
    work=$(mktemp -d)
    trap 'rm -r "$work"' EXIT
}

column() {
    awk -F, -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $1, $c }' "$1"
}
