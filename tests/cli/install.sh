# The installed library is found by pkg-config and by CMake, and shows nothing but its public names.
. "$(dirname "$0")/lib.bash"
build=$(dirname "$sotto")
[ -f "$build/cmake_install.cmake" ] || { echo "skipped: $build is no build folder"; exit 77; }
grep -q '^SOTTO_SANITIZE:STRING=.' "$build/CMakeCache.txt" && { echo "skipped: a sanitizer build"; exit 77; }
[ -e "$build/libsotto.so" ] || die "the library is not built"
DESTDIR= cmake --install "$build" --prefix "$scratch/usr" >out 2>&1 || { cat out; die "install"; }
pc=$(dirname "$(find usr -name sotto.pc)")
sed -i "s|^prefix=.*|prefix=$scratch/usr|" "$pc/sotto.pc"
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
cc user.c -o user $(pkg-config --cflags --libs sotto) || die "cannot build against the library with pkg-config"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir sotto) ./user >out || die "the program fails"
says "^$(pkg-config --modversion sotto) invalid$"
if command -v g++ >/dev/null; then # the header is C++ too
    g++ -x c++ -fsyntax-only $(pkg-config --cflags sotto) user.c || die "the header does not compile as C++"
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
