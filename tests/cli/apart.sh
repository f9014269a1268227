# A device whose memory no host access reaches and whose ops run late: training, resuming and what is printed of memory are
# as on the cpu, for methods of both axes, in threads and in virtual time.
. "$(dirname "$0")/lib.bash"

list='^(threads/2x2/((ddp|zero1|fsdp|acco/replay)/(co2|diloco|overlap-local|mixed|killed)|zero1/slowmo/resume|ddp/diloco/prune'
list+='|ddp/co2/norm|fsdp/mixed/accumulate6|fsdp/olmo2|zero1/mixed/grads-fp32|fsdp/demo|fsdp/(random|striding)/sign-(before|off/bf16)|zero1/(random|every)/(killed|decoupled-adamw))|threads/1x1/fsdp/recompute'
list+='|virtual/2x2/(ddp|dpu|acco-wp)|virtual/2x2/nodes2/slow/acco/mixed)$'
bits=$(dirname "$self")/../../tools/bits
share=${SOTTO_TEST_SHARE-} least=30
case $share in
'') ;;
*/*) least=1 ;;
*) export SOTTO_TEST_SHARE=$share/3 least=10 ;; # each third has overlap, exchanges of groups, and killed runs
esac
"$bits" "$sotto" "$list" >here || die "cpu: $(cat here)"
SOTTO_APART_DELAY=100 "$bits" "$sotto" "$list" --device=apart >there || die "apart: $(cat there)"
[ "$(wc -l <here)" -ge $least ] || die "only $(wc -l <here) configurations"
diff here there || die "a device that is apart gives other bits"

# All memory is accounted as on the cpu: what workers of one process send each other is not staged on the host. Only what
# layers could compute again is kept there, too, unless memory is to be saved.
memory=(train "${tiny[@]}" --steps=4 --workers=2 --shard=zero1)
for device in cpu apart; do
    succeeds "$sotto" "${memory[@]}" --device=$device --out=$device
    grep -o '"memory_.*' $device/report.json >$device.memory
    succeeds "$sotto" "${memory[@]}" --device=$device --out=$device.again --recompute=true
    grep -o '"memory_.*' $device.again/report.json >$device.again.memory
done
[ -s cpu.memory ] || die "no memory in the report"
diff <(grep -v activations cpu.memory) <(grep -v activations apart.memory) || die "a device that is apart needs other memory"
activations() { sed -n 's/"memory_activations": \([0-9]*\),/\1/p' "$1"; }
[ "$(activations apart.memory)" -gt "$(activations cpu.memory)" ] || die "a device that is apart keeps no more"
diff cpu.again.memory apart.again.memory || die "a device that is apart needs other memory for train.recompute"

# What it has no room for is refused, whatever the host has: these workers need about 3 MB there, by the machine's kernels.
fails_with 'the device has 2 MB left' env SOTTO_APART_MEMORY=2000000 "$sotto" "${memory[@]}" --device=apart --out=large
succeeds env SOTTO_APART_MEMORY=8000000 "$sotto" "${memory[@]}" --device=apart --out=large
succeeds env SOTTO_APART_MEMORY=8000000 "$sotto" "${memory[@]}" --device=apart --out=planned --dry_run
says '^memory: about .*; this process takes [2-5]\.[0-9] MB of its device; the device has 8 MB left$'
succeeds env SOTTO_APART_MEMORY=2000000 "$sotto" "${memory[@]}" --device=cpu --out=small
# What helps is what takes most: threads with scratch of their own, or what a micro-batch leaves.
fails_with 'A smaller train.threads, each of which has scratch of its own, takes less' \
    env SOTTO_APART_MEMORY=8M "$sotto" "${memory[@]}" --device=apart --out=none --threads=256
succeeds env SOTTO_APART_MEMORY=8M "$sotto" "${memory[@]}" --device=apart --out=none --threads=2 --dry_run
fails_with 'A smaller train.batch or train.seq, or' \
    env SOTTO_APART_MEMORY=8M "$sotto" "${memory[@]}" --device=apart --out=none --threads=16 --batch=256
fails_with 'SOTTO_APART_MEMORY = 2x: want an integer' env SOTTO_APART_MEMORY=2x "$sotto" "${memory[@]}" --device=apart --out=none
fails_with 'SOTTO_APART_DELAY = 1e7 is out of range: want 0 to 1000000' env SOTTO_APART_DELAY=1e7 "$sotto" "${memory[@]}" \
    --device=apart --out=none
fails_with 'the device has 2 MB left' env SOTTO_APART_MEMORY=2M "$sotto" "${memory[@]}" --device=apart --out=none

# What was trained on one is gone on with on the other.
succeeds "$sotto" train --resume apart --steps=8 --device=cpu
says '^changed: computing on cpu .*, after apart: from here on results may differ by rounding$'
state=$(grep -o 'state [0-9a-f]*' out)
succeeds "$sotto" train --resume cpu --steps=8 --device=apart
[ "$(grep -o 'state [0-9a-f]*' out)" = "$state" ] || die "resumed on the other device, the bits differ"

# What auto was, and has become.
succeeds "$sotto" train "${tiny[@]}" --steps=4 --device=auto --out=auto
succeeds "$sotto" train --resume auto --steps=6
! grep 'computing on' out || die "the same device is told as a change"
sed -i '1s/"device":"..../"device":"gpu?/' auto/checkpoints/step-00000006/state.safetensors
succeeds "$sotto" train --resume auto --steps=8
says '^changed: computing on c[^ ]*.*, after gpu\?.*: from here on results may differ by rounding$'
! grep 'changed: train.device' out || die "auto is not what it was"

# How long a micro-batch takes is measured there, too.
succeeds "$sotto" train "${tiny[@]}" --steps=2 --workers=2 --time=virtual --precision=mixed --device=apart --out=measured

# A model is evaluated and sampled from on it as on the cpu, its caches and logits included.
echo '{"text": "the cat sat on the mat"}' >last.jsonl
for device in cpu apart; do
    succeeds "$sotto" eval cpu --data.train=stories --data.format=stories --data.stories=40 --batches=3 \
        --last_words=last.jsonl --logits=$device.logits --device=$device
    mv out $device.eval
    succeeds "$sotto" sample cpu --prompt="Once upon a time" --tokens=60 --count=2 --device=$device
    mv out $device.sample
done
grep -q '^loss ' cpu.eval && grep -q '^last words: ' cpu.eval && [ -s cpu.sample ] || die "$(cat cpu.eval)"
diff cpu.eval apart.eval || die "evaluated on the other device, the numbers differ"
cmp cpu.logits apart.logits || die "evaluated on the other device, the logits differ"
fails_with 'of memory, and the device has 8 MB left: a smaller batch takes less' \
    env SOTTO_APART_MEMORY=8M "$sotto" eval cpu --data.train=stories --data.format=stories --data.stories=400 --batch=256 --device=apart
diff cpu.sample apart.sample || die "sampled on the other device, the text differs"
fails_with 'device = null computes nothing' "$sotto" sample cpu --device=null
