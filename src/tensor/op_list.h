/* Every op of a device, one entry each: its contract, its name and its parameters.
 *
 *     OP(axpy, VIEW(y), VALUE(float, a), VIEW(x), VALUE(size_t, count))
 *
 * is the op axpy(struct device *dev, struct view y, float a, struct view x, size_t count). A device
 * `cpu` defines it as cpu_axpy; a caller writes dev->ops->axpy(dev, y, a, x, count).
 *
 *     VIEW(y)                struct view y
 *     OPTIONAL(bias)         struct view bias, which may be view_none
 *     VALUE(float, a)        float a
 *     STRUCT(linear, p)      const struct linear *p (ops.h), read before the op returns
 *     ARRAY(stretch, s, n)   const struct stretch *s, int n: `n` structs, read likewise
 *
 * Every table has the ops of OP; a table may leave an OPTIONAL_OP NULL. The file is included once
 * for each use of the whole list: the members of struct ops (ops.h), the prototypes and the table
 * of each device, the null device. The including file defines OP(op, ...), and OPTIONAL_OP(op, ...)
 * where it differs, on the lines above the #include; both end with the list. op_parameters.h turns
 * parameters into C.
 *
 * In the contracts "=" overwrites and "+=" adds to what the view holds; a view may be fp32 or bf16
 * unless its type is given; (rows, width) are shapes. Views do not overlap unless allowed. */
#ifndef OPTIONAL_OP
#define OPTIONAL_OP OP
#endif
// clang-format off

/* --- Flat vectors of `count` elements */

/* y = value */
OP(fill, VIEW(y), VALUE(size_t, count), VALUE(float, value))
/* y = x, converted to the type of y */
OP(copy, VIEW(y), VIEW(x), VALUE(size_t, count))
/* y = x for rows with strides, converted to the type of y */
OP(copy_rows, STRUCT(row_copy, p), VIEW(y), VIEW(x))
/* y += a x */
OP(axpy, VIEW(y), VALUE(float, a), VIEW(x), VALUE(size_t, count))
/* y = b y + a x */
OP(axpby, VIEW(y), VALUE(float, b), VALUE(float, a), VIEW(x), VALUE(size_t, count))
/* y = a y */
OP(scale, VIEW(y), VALUE(float, a), VALUE(size_t, count))

/* --- Linear layers: x (rows, in), y (rows, out) */

/* y = x w^T + bias + residual; bias (out), residual (rows, out). `residual` may be y itself. */
OP(linear_forward, STRUCT(linear, p), VIEW(y), VIEW(x), VIEW(w), OPTIONAL(bias), OPTIONAL(residual))
/* dx = dy w, or dx += dy w with `add` */
OP(linear_backward_x, STRUCT(linear, p), VIEW(dx), VIEW(dy), VIEW(w), VALUE(bool, add))
/* dw += dy^T x, or dw = dy^T x with p->fresh; dbias += column sums of dy. Summed in fp32, rounded
 * once. */
OP(linear_backward_w, STRUCT(linear, p), VIEW(dw), OPTIONAL(dbias), VIEW(dy), VIEW(x))
/* linear_backward_w and linear_backward_x in one call. A caller without this op calls both. */
OPTIONAL_OP(linear_backward, STRUCT(linear, p), VIEW(dx), VIEW(dw), OPTIONAL(dbias), VIEW(dy),
            VIEW(x), VIEW(w), VALUE(bool, add))

/* --- Normalization of rows; stats is fp32 (rows, 2): mean and rstd of each row */

/* y = (x - mean) * rstd * gain + bias */
OP(layernorm_forward, STRUCT(norm, p), VIEW(y), VIEW(x), VIEW(gain), OPTIONAL(bias), VIEW(stats))
/* dx = `from` + the gradient of x; dgain, dbias +=. dx may be `from`, or dy without a `from`. */
OP(layernorm_backward, STRUCT(norm, p), VIEW(dx), OPTIONAL(dgain), OPTIONAL(dbias), VIEW(dy),
   VIEW(x), VIEW(gain), VIEW(stats), OPTIONAL(from))
/* y = x * rstd * gain, rstd = 1/sqrt(mean(x^2) + eps); the mean in stats is 0. */
OP(rmsnorm_forward, STRUCT(norm, p), VIEW(y), VIEW(x), VIEW(gain), VIEW(stats))
/* As layernorm_backward, without a bias */
OP(rmsnorm_backward, STRUCT(norm, p), VIEW(dx), OPTIONAL(dgain), VIEW(dy), VIEW(x), VIEW(gain),
   VIEW(stats), OPTIONAL(from))

/* --- Activations */

/* y = gelu(x) */
OP(gelu_forward, VALUE(enum gelu_kind, kind), VIEW(y), VIEW(x), VALUE(size_t, count))
/* dx = dy * gelu'(x); dx may be dy. */
OP(gelu_backward, VALUE(enum gelu_kind, kind), VIEW(dx), VIEW(dy), VIEW(x), VALUE(size_t, count))
/* gelu_backward of (rows, width) elements, and dbias (width) += column sums of dx. A caller without
 * this op leaves dbias to linear_backward_w. */
OPTIONAL_OP(gelu_bias_backward, VALUE(enum gelu_kind, kind), VALUE(int, rows), VALUE(int, width),
            VIEW(dx), VIEW(dbias), VIEW(dy), VIEW(x))
/* y = silu(gate) * up */
OP(swiglu_forward, VIEW(y), VIEW(gate), VIEW(up), VALUE(size_t, count))
/* dgate =, dup =; either may be dy. */
OP(swiglu_backward, VIEW(dgate), VIEW(dup), VIEW(dy), VIEW(gate), VIEW(up), VALUE(size_t, count))
/* y = x, or 0 where x is negative; y may be x. */
OP(relu_forward, VIEW(y), VIEW(x), VALUE(size_t, count))
/* dx = dy where y of relu_forward is not 0, else 0; dx may be dy. */
OP(relu_backward, VIEW(dx), VIEW(dy), VIEW(y), VALUE(size_t, count))

/* --- Tokens: targets and tokens are int32 */

/* Rotates pairs (i, i + width/2) of every head in place; `inverse` is the backward pass. */
OP(rope, STRUCT(rope, p), VIEW(x), VALUE(bool, inverse))
/* y[r] = table[tokens[r]] + positions[start + r % t] for batch * t rows r of `width` */
OP(embedding_forward, VALUE(int, batch), VALUE(int, t), VALUE(int, width), VALUE(int, start),
   VIEW(y), VIEW(tokens), VIEW(table), OPTIONAL(positions))
/* dtable +=, dpositions +=; tokens may be view_none without dtable. The sum over all occurrences of
 * a token or position is in fp32 and rounded once. */
OP(embedding_backward, VALUE(int, batch), VALUE(int, t), VALUE(int, width), OPTIONAL(dtable),
   OPTIONAL(dpositions), VIEW(tokens), VIEW(dy))
/* o = softmax(q k^T) v of each head; lse fp32 (batch, heads, t_q) = the log of the sum of
 * exponentials of each query's scores */
OP(attention_forward, STRUCT(attention, p), VIEW(o), VIEW(q), VIEW(k), VIEW(v), VIEW(lse))
/* dq =, dk =, dv =, with the strides of q, k, v; t_q == t_k. dy is the gradient of o. */
OP(attention_backward, STRUCT(attention, p), VIEW(dq), VIEW(dk), VIEW(dv), VIEW(dy), VIEW(o),
   VIEW(q), VIEW(k), VIEW(v), VIEW(lse))
/* losses[r] = -log softmax(logits[r])[targets[r]], fp32, or 0 where the target is negative (an
 * ignored row). With scale != 0 the logits become the gradient scale * (softmax - onehot), 0 in
 * ignored rows. places[r] (uint8) = the rank of the target among the logits of the row: 1 for the
 * largest (the first of equal logits), 255 at most, 0 in ignored rows. */
OP(cross_entropy, VALUE(int, rows), VALUE(int, vocab), VIEW(logits), VIEW(targets),
   VALUE(float, scale), VIEW(losses), OPTIONAL(places))

/* --- Images: rows of (h, w, channels); h' and w' are window_count (ops.h) of h and w */

/* y (rows, h', w', out) = the products of the windows of x with w, + bias (out) */
OP(conv_forward, STRUCT(conv, p), VIEW(y), VIEW(x), VIEW(w), OPTIONAL(bias))
/* dx =, or dx += with `add` */
OP(conv_backward_x, STRUCT(conv, p), VIEW(dx), VIEW(dy), VIEW(w), VALUE(bool, add))
/* dw +=, dbias +=; summed in fp32, rounded once. */
OP(conv_backward_w, STRUCT(conv, p), VIEW(dw), OPTIONAL(dbias), VIEW(dy), VIEW(x))
/* y (rows, h', w', channels) = the largest element of each window; winner (uint8, shape of y) = its
 * place ky * kernel + kx in the window, the first of equal elements. */
OP(maxpool_forward, STRUCT(pooling, p), VIEW(y), VIEW(winner), VIEW(x))
/* dx = */
OP(maxpool_backward, STRUCT(pooling, p), VIEW(dx), VIEW(dy), VIEW(winner))
/* y (rows, channels) = the mean over the pixels of x (rows, pixels, channels) */
OP(meanpool_forward, VALUE(int, rows), VALUE(int, pixels), VALUE(int, channels), VIEW(y), VIEW(x))
/* dx = */
OP(meanpool_backward, VALUE(int, rows), VALUE(int, pixels), VALUE(int, channels), VIEW(dx),
   VIEW(dy))
/* y = (x - mean) * rstd * gain + bias + residual, then relu with p->relu; x or residual may be y.
 * stats, fp32 (2, width): mean and rstd for the backward pass. In training running_mean and
 * running_variance, fp32 (width), take the share p->momentum of this mean and of the variance
 * divided by n - 1 (by n where n is 1), as in torch. */
OP(batchnorm_forward, STRUCT(batchnorm, p), VIEW(y), VIEW(x), VIEW(gain), VIEW(bias),
   OPTIONAL(residual), OPTIONAL(running_mean), OPTIONAL(running_variance), VIEW(stats))
/* dx =, dgain +=, dbias +=, dresidual =. With p->relu, dy counts where y of batchnorm_forward is
 * not 0; without, y is not read. One of dx and dresidual may be dy. */
OP(batchnorm_backward, STRUCT(batchnorm, p), VIEW(dx), OPTIONAL(dgain), OPTIONAL(dbias),
   OPTIONAL(dresidual), VIEW(dy), VIEW(x), VIEW(y), VIEW(gain), VIEW(stats))

/* --- Optimizers */

/* One step over `n` stretches */
OP(adamw, STRUCT(adamw, p), ARRAY(stretch, s, n))
OP(sgd, STRUCT(sgd, p), ARRAY(stretch, s, n))
/* The outer update of CO2 (struct co2_step); all vectors fp32 */
OP(co2, STRUCT(co2_step, p), VIEW(x), VIEW(now), VIEW(m), VIEW(sent), OPTIONAL(d),
   VALUE(size_t, count))

/* --- Codecs: m and y are fp32, value is fp32 or bf16, index is int32 */

/* For each tile of m, the `keep` largest coefficients (the earlier of equal coefficients) in the
 * order of their index in the tile: index = the index, value = the coefficient, rounded. The
 * rounded coefficients are subtracted from m. `basis` (fp32): the matrix (n, n) of the transform, a
 * row for each frequency, for each side n of the tiles. */
OP(tiles_encode, STRUCT(tiling, p), VIEW(basis), VIEW(m), VIEW(index), VIEW(value))
/* y = the tiles whose coefficients are the means of the coefficients that `senders` workers sent:
 * those of worker i begin at i * index_step of `index` and i * value_step of `value`. A coefficient
 * is summed in the order of the workers and divided by the number of workers that sent it; 0 if no
 * worker did. An index outside of its tile is skipped, and is a failure (tiles_damaged). */
OP(tiles_decode, STRUCT(tiling, p), VIEW(basis), VALUE(int, senders), VIEW(y), VIEW(index),
   VALUE(size_t, index_step), VIEW(value), VALUE(size_t, value_step))
/* y (bytes) = the lowest `bits` (1 to 16) of each element of x (int32), without gaps, from the
 * lowest bits of the first byte on; the last byte is filled up with zeros. */
OP(bits_pack, VALUE(int, bits), VIEW(y), VIEW(x), VALUE(size_t, count))
/* y (int32) = the elements that bits_pack packed into x */
OP(bits_unpack, VALUE(int, bits), VIEW(y), VIEW(x), VALUE(size_t, count))
/* y = -1, 0 or 1, or NaN where x is NaN; y may be x. */
OP(sign, VIEW(y), VIEW(x), VALUE(size_t, count))
/* index = the first `count` elements of the shuffle (base/rng.h) */
OP(choose, STRUCT(shuffle, p), VIEW(index), VALUE(size_t, count))
/* value = the selected elements of m, rounded; the rounded values are subtracted from m. */
OP(pick, STRUCT(picks, p), VIEW(value), VIEW(m), OPTIONAL(index))
/* Selected elements of y = a * value; the rest of y stays. */
OP(put, STRUCT(picks, p), VIEW(y), VALUE(float, a), VIEW(value), OPTIONAL(index))
/* y (bytes) = the signs of x in two bits each, four a byte from the lowest bits on: 0, 1, 3 for -1,
 * 2 for NaN; the last byte is filled up with zeros. */
OP(signs_pack, VIEW(y), VIEW(x), VALUE(size_t, count))
/* y = the signs in x, or y += with `add` */
OP(signs_unpack, VIEW(y), VIEW(x), VALUE(size_t, count), VALUE(bool, add))

// clang-format on
#undef OP
#undef OPTIONAL_OP
