# The installed library is found by pkg-config and by CMake, shows nothing but its public names, and trains a program's own
# function (examples/quadratic.c, mixture.c) with every method: over threads, in virtual time, under MPI, and after kill -9.
. "$(dirname "$0")/lib.bash"
build=$(dirname "$sotto")
[ -f "$build/cmake_install.cmake" ] || { echo "skipped: $build is no build folder"; exit 77; }
grep -q '^SOTTO_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "skipped: a sanitizer build"; exit 77; }
[ -e "$build/libsotto.so" ] || die "the library is not built"
DESTDIR= cmake --install "$build" --prefix "$scratch/first" >out 2>&1 || { cat out; die "install"; }
mv first usr # the tree can be moved

# The target `product`, which ./quickstart builds, makes all that is installed and no test; without it nothing is installed.
sed "s|$build|$scratch/empty|g" "$build/cmake_install.cmake" >missing.cmake
fails_with "is not built" cmake -DCMAKE_INSTALL_PREFIX="$scratch/none" -P missing.cmake
tr -s ' \n' ' ' <out | grep -qF "cmake --build $scratch/empty --target product" || die "no way to build it: $(cat out)" # CMake breaks lines
[ ! -e none ] || die "half of it was installed: $(find none)"
if [ -e "$build/build.ninja" ]; then
    ninja -C "$build" -t commands product >out || die "no target product"
    for file in sotto libsotto.so sotto.1 sotto.bash; do
        grep -qE "(-o|>|symlink_library) ([^ ]* )*$file( |\$|\.)" out || die "the target product does not make $file"
    done
    ! grep -qE -- '-o (test|bench)_' out || die "the target product makes tests"
fi
pc=$(dirname "$(find usr -name sotto.pc)")
for file in share/man/man1/sotto.1 share/bash-completion/completions/sotto; do
    [ -s usr/$file ] || die "$file is not installed"
done
"$sotto" man | cmp - usr/share/man/man1/sotto.1 || die "the installed manual page is not the command's"
"$sotto" completion | cmp - usr/share/bash-completion/completions/sotto || die "the installed completion is not the command's"
cat >user.c <<'END'
#include <sotto/sotto.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    const char *const arguments[] = {"train", "--steps=none"};
    if (sotto_command(2, arguments) != SOTTO_EINVAL || !strstr(sotto_error(), "want an integer"))
        return 1;
    printf("%s %s\n", sotto_version(), sotto_status_name(SOTTO_EINVAL));
    return 0;
}
END
export PKG_CONFIG_PATH=$scratch/$pc
[ "$(readlink -f "$(pkg-config --variable=prefix sotto)")" = "$scratch/usr" ] ||
    die "pkg-config takes $(pkg-config --variable=prefix sotto) for the prefix, not $scratch/usr"
cc user.c -o user $(pkg-config --cflags --libs sotto) || die "cannot build against the library with pkg-config"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir sotto) ./user >out || die "the program fails"
says "^$(pkg-config --modversion sotto) invalid$"
if command -v g++ >/dev/null; then # the header is C++ too
    g++ -x c++ -fsyntax-only $(pkg-config --cflags sotto) user.c || die "the header does not compile as C++"
fi

# A program's own gradient: every method over threads and in virtual time, the same bits where both are deterministic.
cc -std=c11 -Wall -Wextra -Werror "$(dirname "$self")/../../examples/quadratic.c" -o quadratic $(pkg-config --cflags --libs sotto) ||
    die "cannot build examples/quadratic.c with pkg-config"
export LD_LIBRARY_PATH=$(pkg-config --variable=libdir sotto)
bits() { awk 'END {print $NF}' out; }
succeeds ./quadratic --workers=2 --steps=60
for method in ddp zero1 fsdp; do
    [ "$(awk -v m=$method '$1 == m {print $NF}' out | uniq | wc -l)" = 1 ] || { cat out; die "$method: threads and virtual time differ"; }
done
[ "$(awk 'NR > 1 {print $1}' out | uniq -d | wc -l)" -ge 3 ] || { cat out; die "methods are missing"; }
fails_with "did you mean 'zero1'?" ./quadratic --strategy=zero
fails_with "command line: unknown key 'strategy.accumulat': did you mean 'strategy.accumulate'?" ./quadratic --strategy.accumulat=2

# Groups with and without common rounds (examples/mixture.c), small: nobody waits for the slow ones, and a method that is asked for by
# options repeats what it did among all.
cc -std=c11 -O3 -Wall -Wextra -Werror "$(dirname "$self")/../../examples/mixture.c" -o mixture $(pkg-config --cflags --libs sotto) -lm ||
    die "cannot build examples/mixture.c with pkg-config"
small=(--steps=10 --eval_every=10 --H=3 seeds=1)
succeeds ./mixture "${small[@]}" tsv=all.tsv
awk 'NR > 1 {gsub("%", ""); for (i = 2; i < NF; i++) if ($(i + 1) == "s") takes[$1] = $i}
     END {exit !(length(takes) == 6 && takes["async-delayed"] > 10 && takes["async-delayed"] < takes["sync-nesterov"] / 2)}' out ||
    { cat out; die "asynchronous groups wait"; }
succeeds ./mixture "${small[@]}" --strategy=async-diloco --outer_lr=0.3 tsv=one.tsv
diff <(awk '$1 == "async-delayed"' all.tsv | cut -f2-) <(awk '$1 == "async-diloco"' one.tsv | cut -f2-) ||
    die "async-diloco differs from what it was among all methods"
fails_with "'seed=3': want seeds=N, tsv=FILE or --key=value" ./mixture seed=3

# The programs of docs/library/embedding.md are whole: they build, run and learn, and the page names all that the header declares.
page=$(dirname "$self")/../../docs/library/embedding.md
for name in fit loop; do
    awk -v first="/\\* $name.c \\*/" '/^```/ {on = 0} on || $0 ~ first {on = 1; print}' "$page" >$name.c
    command=$(sed -n "s/^cc $name.c /cc -std=c11 -Wall -Wextra -Werror $name.c /p" "$page") # with the libraries that the page says
    [ -n "$command" ] && eval "$command" || die "$name.c of docs/library/embedding.md: ${command:-no command builds it}"
done
for arguments in --workers=1 "--workers=4 --strategy=zero1" "--workers=3 --strategy=co2 --tau=4 --time=virtual --worker.step=20ms"; do
    succeeds ./fit $arguments
    awk '/^[0-9]+ workers/ {exit !($6 < 1e-3)}' out || { cat out; die "fit $arguments does not learn"; }
done
succeeds ./fit --workers=2 fit.state
succeeds ./fit --workers=2 fit.state
says '^2 workers, 300 rounds'
! grep -q '^round' out || die "fit began anew instead of from its checkpoint"
for method in ddp fsdp async-diloco; do
    succeeds ./loop --workers=2 --strategy=$method
    says '^rank 0 of 2: loss 0\.0[0-9]* after'
    [ -s state.safetensors ] || die "loop saved nothing"
    rm state.safetensors
done
for name in $(sed -n 's/^SOTTO_API.*\b\(sotto_[a-z_]*\)(.*/\1/p' usr/include/sotto/*.h); do
    short=$(echo "$name" | sed -E 's/^sotto_(options|trainer|worker|mpi)//')
    grep -qE "$name|\`$short\b" "$page" ||
        die "docs/library/embedding.md does not mention $name"
done
for name in $(cc -fpreprocessed -dD -E -P usr/include/sotto/train.h | awk '/^struct sotto_[a-z]+ \{/, /^\};/' |
    grep -oE '\(\*[a-z_]+\)|[a-z_]+(\[[^]]*\])?[;,]' | grep -oE '^\(?\*?[a-z_]+' | tr -d '(*' | sort -u); do
    grep -qw "$name" "$page" || die "docs/library/embedding.md does not mention the member $name"
done

# Killed in the middle it goes on from its checkpoint to the same bits.
long=(--strategy=zero1 --workers=2 --steps=400 --save_every=20 --kind=adamw)
succeeds ./quadratic "${long[@]}"
whole=$(bits)
./quadratic "${long[@]}" --link.intra=1GB/s,4ms state.safetensors >out 2>&1 & # the links make it seconds
pid=$!
await [ -e state.safetensors ]
kill -9 $pid 2>/dev/null || die "it ended before it could be killed"
{ wait $pid; } 2>/dev/null
[ -e state.safetensors ] || die "no checkpoint"
succeeds ./quadratic "${long[@]}" state.safetensors
[ "$(bits)" = "$whole" ] || { cat out; die "other bits after kill -9: want $whole"; }
awk 'END {exit !($5 < 50)}' out || { cat out; die "it began anew"; } # the first loss is that of a trained function

# Ranks of MPI, with the launcher of the library that libsotto was built with.
case $(ldd quadratic) in
*libmpich*) launchers="mpiexec.mpich mpiexec.hydra" ;;
*libmpi.so*) launchers="mpirun.openmpi mpirun" ;;
*) launchers= ;;
esac
launch=
for name in $launchers; do launch=$(command -v "$name") && break; done
if [ -n "$launch" ]; then
    if "$launch" --version 2>&1 | grep -q -e 'Open MPI' -e OpenRTE; then
        launch="$launch --oversubscribe"
        [ "$(id -u)" -ne 0 ] || launch="$launch --allow-run-as-root"
    fi
    succeeds ./quadratic --strategy=zero1 --workers=3
    threads=$(bits)
    succeeds timeout 300 $launch -n 3 ./quadratic --strategy=zero1
    [ "$(bits)" = "$threads" ] || { cat out; die "MPI's ranks and threads differ: want $threads"; }
    mkdir far0 far1 far2 # rank 0 alone has the checkpoint
    for _ in written read; do
        succeeds timeout 300 $launch -n 3 sh -c 'cd "far${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && exec ../quadratic "$@"' sh \
            --strategy=zero1 state.safetensors
        [ "$(bits)" = "$threads" ] || { cat out; die "from a checkpoint of rank 0: want $threads"; }
    done
    [ ! -e far1/state.safetensors ] || die "rank 1 has a checkpoint"
    fails_with "the options" timeout 300 $launch -n 1 ./quadratic --lr=0.1 : -n 1 ./quadratic --lr=0.2
    # Few steps: methods that overlap compute for as long as their exchange waits for a core.
    succeeds timeout 300 $launch -n 3 ./quadratic --steps=8
    [ "$(awk 'NR > 1 && $3 == 3' out | wc -l)" -ge 3 ] || { cat out; die "methods are missing under MPI"; }
fi

names=$(nm -D --defined-only usr/lib*/libsotto.so usr/lib*/*/libsotto.so 2>/dev/null | awk 'NF == 3 {print $3}' | grep -v '^sotto_')
[ -z "$names" ] || die "these names are visible: $names"

mkdir consumer
cat >consumer/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(sotto REQUIRED)
add_executable(user ../user.c)
target_link_libraries(user PRIVATE sotto::sotto)
END
cmake -G Ninja -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$scratch/usr" >out 2>&1 && cmake --build consumer/build >>out 2>&1 ||
    { cat out; die "cannot build against the library with CMake"; }
consumer/build/user >/dev/null || die "the program built with CMake fails"
exit 0
