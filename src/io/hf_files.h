/* The files of a Hugging Face model folder, apart from config.json and the weights. */
#ifndef SOTTO_IO_HF_FILES_H
#define SOTTO_IO_HF_FILES_H

#include <stdbool.h>

struct hf_file {
    const char *name;
    bool tokenizer; /* belongs to the tokenizer, not to the model */
};

static const struct hf_file hf_files[] = {
    {"tokenizer.json", true},
    {"tokenizer_config.json", true},
    {"special_tokens_map.json", true},
    {"added_tokens.json", true},
    {"vocab.json", true},
    {"merges.txt", true},
    {"tokenizer.model", true},
    {"chat_template.jinja", true},
    {"chat_template.json", true},
    {"generation_config.json", false},
    {"preprocessor_config.json", false},
};
enum { HF_FILES = sizeof hf_files / sizeof *hf_files };

#endif
