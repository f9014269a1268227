# Whether what was made is what experiments/SHA256 records; read by scripts, not run.
#
#   compare_hash FILE     says it in a few words; FILE is experiments/NAME; the hash of a folder is that of its files' hashes
hash_of() {
    if [ -d "$1" ]; then
        (cd "$1/" && find -L . -type f | LC_ALL=C sort | xargs sha256sum) | sha256sum
    else
        sha256sum <"$1"
    fi
}

compare_hash() {
    local name=${1#experiments/} found want of
    found=$(hash_of "$1")
    read -r want of < <(awk -v name="$name" '$2 == name { hash = $1; $1 = $2 = ""; print hash, $0; exit }' experiments/SHA256)
    if [ -z "$want" ]; then
        echo "of which experiments/SHA256 has no hash"
    elif [ "$want" = "${found%% *}" ]; then
        echo "as recorded"
    else
        echo "OTHER than recorded, which was made of $of: losses will differ from docs/results (experiments/SHA256)"
    fi
}
