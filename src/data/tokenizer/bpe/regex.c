/* Splitting by a pattern from the file, with PCRE2.
 *
 * Patterns are written for Oniguruma (Ruby's syntax). Differences are translated: \s and the
 * categories of letters, marks and numbers are those of Unicode 16, \s is without U+180E, and ^ and
 * $ match at lines. Syntax with another meaning and without a translation is refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/bpe/bpe.h"

#include <inttypes.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/bpe/recent.h"

#define MAX_PATTERN 16384
#define MATCH_LIMIT 2000000 /* steps of one match */

static const char spaces[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
    "\\x{202f}\\x{205f}\\x{3000}";

static enum sotto_status append_text(struct bpe_buffer *out, const char *text)
{
    return bpe_buffer_add(out, text, strlen(text));
}

/* Returns the length of \p{L}, \p{Lu}, ... at the start of `p`, 0 if there is none. */
static size_t category_at(const char *p, size_t n)
{
    if (n < 5 || memcmp(p, "\\p{", 3) != 0 || !memchr("LMN", p[3], 3))
        return 0;
    if (p[4] == '}')
        return 5;
    return n >= 6 && p[4] >= 'a' && p[4] <= 'z' && p[5] == '}' ? 6 : 0;
}

/* Writes the category `p`, and the characters that PCRE2's tables may lack, as members of a class.
 */
static enum sotto_status put_category(struct bpe_buffer *out, const char *p, size_t size)
{
    TRY(bpe_buffer_add(out, p, size));
    for (int i = 0; i < bpe_recent_count; i++) {
        char range[48];
        if (memcmp(bpe_recent[i].category, p + 3, size - 4) != 0)
            continue;
        snprintf(range, sizeof range, "\\x{%" PRIx32 "}-\\x{%" PRIx32 "}", bpe_recent[i].from,
                 bpe_recent[i].to);
        TRY(append_text(out, range));
    }
    return SOTTO_OK;
}

/* Translates one escape, at p[0] == '\\', of `*used` bytes. */
static enum sotto_status put_escape(struct bpe_buffer *out, const char *p, size_t n, bool in_class,
                                    size_t *used)
{
    size_t category = category_at(p, n);
    char c = n >= 2 ? p[1] : '\0';
    *used = category ? category : n >= 2 ? 2 : 1;
    if (category || c == 's') {
        TRY(append_text(out, in_class ? "" : "["));
        TRY(category ? put_category(out, p, category) : append_text(out, spaces));
        return append_text(out, in_class ? "" : "]");
    }
    if (c == 'S' && !in_class) {
        TRY(append_text(out, "[^"));
        TRY(append_text(out, spaces));
        return append_text(out, "]");
    }
    if (c != '\0' && strchr("hHRXKCGQ", c)) /* other meanings, or none, in a pattern from Ruby */
        return fail(SOTTO_EFORMAT, "\\%c in a split pattern is not supported", c);
    return bpe_buffer_add(out, p, *used);
}

/* Checks a class inside a class, at p[i] == '['. In Ruby's syntax the classes' union counts, so
 * that the members of the inner class may be written into the outer class. */
static enum sotto_status check_inner_class(const char *p, size_t n, size_t i)
{
    const char next = i + 1 < n ? p[i + 1] : '\0';
    const bool range = p[i - 1] == '-' || next == '-';
    return range || next == '^' || next == ':' || next == ']'
               ? fail(SOTTO_EFORMAT, "[%c inside a class of a split pattern is not supported",
                      range ? '-' : next)
               : SOTTO_OK;
}

static enum sotto_status translate_pattern(const char *p, size_t n, struct bpe_buffer *out)
{
    int depth = 0; /* of [ */
    for (size_t i = 0; i < n;) {
        size_t used = 1;
        bool written = true;
        if (p[i] == '\\') {
            TRY(put_escape(out, p + i, n - i, depth > 0, &used));
            written = false;
        } else if (p[i] == '[') {
            if (++depth > 1)
                TRY(check_inner_class(p, n, i));
            written = depth == 1;
        } else if (p[i] == ']' && depth > 0) {
            written = --depth == 0;
        }
        if (p[i] == '&' && depth > 0 && i + 1 < n && p[i + 1] == '&')
            return fail(SOTTO_EFORMAT, "&& in a class of a split pattern is not supported");
        if (p[i] == '}' && i + 1 < n && p[i + 1] == '+') /* possessive in PCRE2, a repeat in Ruby */
            return fail(SOTTO_EFORMAT, "}+ in a split pattern is not supported");
        if (written)
            TRY(bpe_buffer_add(out, p + i, 1));
        i += used;
    }
    return SOTTO_OK;
}

enum sotto_status bpe_regex_compile(void **code, const char *pattern, size_t size, bool literal)
{
    enum sotto_status st = SOTTO_OK;
    char shown[48];
    struct bpe_buffer text = {0};
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    *code = NULL;
    if (!context)
        return fail(SOTTO_ENOMEM, "no memory for a split pattern");
    if (size == 0 || size > MAX_PATTERN) {
        st = fail(SOTTO_EFORMAT, "a split pattern has %zu bytes, must be in 1..%d", size,
                  MAX_PATTERN);
        goto done;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    TRY_DONE(literal ? bpe_buffer_add(&text, pattern, size)
                     : translate_pattern(pattern, size, &text));
    uint32_t options =
        literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
    int error;
    PCRE2_SIZE at;
    *code = pcre2_compile((PCRE2_SPTR)text.data, text.count, options, &error, &at, context);
    if (!*code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(error, why, sizeof why);
        st = fail(SOTTO_EFORMAT, "split pattern \"%s\": %s", bpe_show(shown, pattern, size),
                  (const char *)why);
        goto done;
    }
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* matching is slower without it, but the same */
done:
    pcre2_compile_context_free(context);
    free(text.data);
    return st;
}

void bpe_regex_free(void *code)
{
    pcre2_code_free(code);
}

struct bpe_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

void bpe_matcher_free(struct bpe_matcher *matcher)
{
    if (matcher) {
        pcre2_match_data_free(matcher->data);
        pcre2_match_context_free(matcher->context);
        pcre2_jit_stack_free(matcher->stack);
    }
    free(matcher);
}

static enum sotto_status matcher_make(struct bpe_matcher **out)
{
    struct bpe_matcher *matcher = calloc(1, sizeof *matcher);
    if (matcher) {
        matcher->data = pcre2_match_data_create(1, NULL);
        matcher->context = pcre2_match_context_create(NULL);
    }
    if (!matcher || !matcher->data || !matcher->context) {
        bpe_matcher_free(matcher);
        return fail(SOTTO_ENOMEM, "no memory to match a split pattern");
    }
    pcre2_set_match_limit(matcher->context, MATCH_LIMIT);
    *out = matcher;
    return SOTTO_OK;
}

static int match_pattern(struct bpe_matcher *matcher, const pcre2_code *code, const char *text,
                         size_t size, size_t from)
{
    int found = pcre2_match(code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, matcher->data,
                            matcher->context);
    if (found != PCRE2_ERROR_JIT_STACKLIMIT || matcher->stack)
        return found;
    matcher->stack = pcre2_jit_stack_create(1 << 16, 1 << 23, NULL); /* few texts need a stack */
    pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    return pcre2_match(code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, matcher->data,
                       matcher->context);
}

enum sotto_status bpe_regex_find(struct bpe_matcher **matcher, const void *code, const char *text,
                                 size_t size, size_t from, bool *found, size_t *start, size_t *end)
{
    if (!*matcher)
        TRY(matcher_make(matcher));
    int result = match_pattern(*matcher, code, text, size, from);
    *found = result != PCRE2_ERROR_NOMATCH;
    if (!*found)
        return SOTTO_OK;
    if (result < 0) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(result, why, sizeof why);
        return fail(SOTTO_EINVAL, "splitting %zu bytes: %s", size, (const char *)why);
    }
    *start = pcre2_get_ovector_pointer((*matcher)->data)[0];
    *end = pcre2_get_ovector_pointer((*matcher)->data)[1];
    return SOTTO_OK;
}
