# What the tables of options become: help that fits a terminal, the manual page, completion.
. "$(dirname "$0")/lib.bash"

# Every command fits 80 columns, in short and whole; the short help of train tells of every section and method, and has few lines.
commands=$("$sotto" help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
for command in $commands; do
    for topic in "" all; do
        succeeds "$sotto" $command --help $topic
        wide=$(awk 'length($0) > 80' out)
        [ -z "$wide" ] || die "$command --help $topic is wider than 80 columns: $wide"
    done
done
succeeds "$sotto" train --help
cp out short
sed -n '/^  inside a group/,/^  others that/p' short | grep '^    ' >methods
[ "$(grep -vcFxf methods short)" -le 44 ] || die "train --help has $(grep -vcFxf methods short) lines without the methods"
awk '/^    [^ ]/ { n = 0 } ++n > 4 { print $0; exit 1 }' methods || die "train --help says more than 4 lines of a method"
succeeds "$sotto" train --help all
cp out whole
sections=$(sed -n 's/^\[\([a-z0-9-]*\)\] .*/\1/p' whole)
[ "$(echo "$sections" | wc -w)" -ge 9 ] || die "sections: $sections"
for section in $sections; do
    grep -qE "^ +$section +[A-Za-z]" short || die "train --help does not tell what [$section] is"
    succeeds "$sotto" train --help $section
    says "^  --$section\.[a-zA-Z_0-9]+ "
    [ "$(grep -c '^  --' out)" = "$(grep -c "^  --$section\." whole)" ] || die "--help $section does not tell all of it"
    [ "$(grep -c "^  --$section\." out)" = "$(grep -c '^  --' out)" ] || die "--help $section tells of others"
done
succeeds "$sotto" train --help lr
says '^  --optim.lr .*learning rate'
[ "$(grep -c '^  --' out)" = 1 ] || die "--help lr tells more than lr"
succeeds "$sotto" train --help=slowmo.tau
says '^  --slowmo.tau '
succeeds "$sotto" train --help zero1
says '^zero1  ZeRO'
succeeds "$sotto" help train strategy
says '^\[strategy\]'
fails_with "no section or option 'strategi': did you mean 'strategy'?" "$sotto" train --help strategi
fails_with "no section or option 'foo'" "$sotto" train --help foo
! grep -q 'did you mean' out || die "a far guess: $(cat out)"

# The manual page tells of every option, and its formatter has nothing to say against it.
succeeds "$sotto" man
cp out sotto.1
sed 's/\\-/-/g' sotto.1 >plain
for flag in $(sed -n 's/^  \(--[^ ]*\).*/\1/p' whole); do
    grep -qxF -- ".B $flag" plain || die "the manual page has no $flag"
done
for command in $commands; do
    grep -qx "\.SH SOTTO $command" sotto.1 || die "the manual page has no sotto $command"
done
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z sotto.1 >out 2>&1
    [ ! -s out ] || die "groff on the manual page: $(cat out)"
fi

# Completion: commands, options, values and topics, with words as bash cuts them.
succeeds "$sotto" completion
cp out completion.bash
complete_it() { # WORD...: the candidates for the last one
    bash --norc -c '
        . ./completion.bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _sotto
        printf "%s\n" "${COMPREPLY[@]}"' bash "$@" 2>&1
}
offers() { # WANT WORD...
    local want=$1
    shift
    complete_it "$@" >out
    [ "$(tr '\n' ' ' <out)" = "$want " ] || die "completion of '$*': $(cat out), want $want"
}
offers "train tokenize" sotto t
offers "--optim.lr=" sotto train --optim.l
offers "--lr=" sotto train --lr
offers "fp32 mixed" sotto train --precision = ""
offers "fp32 mixed" sotto train --strategy.precision =
offers "zero1" sotto train --strategy = z
offers "gpt2-large" sotto train --model.preset = gpt2-l
offers "true false" sotto train --resume = ""
offers "model" sotto train --help mo
touch my.ini
offers "my.ini" sotto train my
complete_it sotto train -- | sed 's/=$//' >offered
for flag in $(sed -n 's/^  \(--[^ ]*\).*/\1/p' whole); do
    grep -qxF -- "$flag" offered || die "completion does not offer $flag"
done
exit 0
