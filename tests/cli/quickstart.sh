# ./quickstart started again where a GPU has come or gone: with stand-ins for what it installs, builds and runs; and the hashes of experiments.
. "$(dirname "$0")/lib.bash"

source=$(dirname "$self")/../..
mkdir -p tools bin build/release
cp "$source/quickstart" .
echo 'build_packages= extra_packages=' >tools/build-packages
printf '#!/bin/bash\n' | tee tools/install-packages bin/cmake >bin/bible
echo 'echo "cmake $*"' >>bin/cmake
echo 'text' >build/kjv.txt
touch build/release/build.ninja gpu
cat >build/release/sotto <<'END'
#!/bin/bash
[ "$1" != info ] || { cat gpu; exit; }
[ "$1" = compare ] || exit 0
for word; do
    case $word in
        --out=*) out=${word#*=} ;;
        --device=*) device=${word#*=} ;;
    esac
done
mkdir -p $out/ddp
kept=$(cat $out/ddp/compare.ini 2>/dev/null)
[ -z "$kept" ] || [ "$kept" = "device = $device" ] || { echo "another configuration"; exit 1; }
echo "device = $device" >$out/ddp/compare.ini
printf 'run,seconds,time_to_loss\nddp,2,2\nacco,1,1\n' >$out/table.csv
END
chmod +x tools/install-packages bin/* build/release/sotto
quickstart=(env PATH="$scratch/bin:$PATH" ./quickstart)

succeeds "${quickstart[@]}"
says '^cmake --build build/release --target product$' # which can be installed, see install.sh
says '^What it means: on this link ddp needs 2.0 times as long as acco'
echo 'GPU 0: A card' >gpu
succeeds "${quickstart[@]}"
says '^== on the GPU: A card$'
says '^\(quickstart-run-methods was begun with --device=cpu and continues with it; to use cuda, remove the folder\)$'
grep -qx 'device = cpu' quickstart-run-methods/ddp/compare.ini || die "it went on elsewhere"
rm -r quickstart-run-methods
succeeds "${quickstart[@]}"
! grep -q 'was begun' out || die "of a comparison that is new: $(cat out)"
grep -qx 'device = cuda' quickstart-run-methods/ddp/compare.ini || die "a new one does not use the GPU"
: >gpu
fails_with 'Another folder (./quickstart OTHER) makes one on the processor' "${quickstart[@]}"
succeeds "${quickstart[@]}" other
grep -qx 'device = cpu' other-methods/ddp/compare.ini || die "another folder"

# What the experiments' scripts make is known by its hash, a file's or a folder's, whatever the order of its files.
mkdir -p experiments/data/folder
. "$source/experiments/hashes.bash"
echo text | tee experiments/data/text.txt experiments/data/folder/b >experiments/data/folder/a
for name in text.txt folder; do
    echo "$(hash_of experiments/data/$name | cut -d ' ' -f 1)  data/$name  the package" >>experiments/SHA256
    is=$(compare_hash experiments/data/$name)
    [ "$is" = "as recorded" ] || die "$name: $is"
done
echo more | tee -a experiments/data/text.txt >>experiments/data/folder/b
for name in text.txt folder; do
    is=$(compare_hash experiments/data/$name)
    [[ $is == "OTHER than recorded, which was made of the package: "* ]] || die "$name has changed: $is"
done
is=$(compare_hash experiments/data/folder/a)
[ "$is" = "of which experiments/SHA256 has no hash" ] || die "no hash: $is"
