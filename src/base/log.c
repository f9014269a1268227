#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink *current;
static void *current_arg;

void log_set(log_sink *sink, void *arg)
{
    pthread_mutex_lock(&lock);
    current = sink;
    current_arg = arg;
    pthread_mutex_unlock(&lock);
}

static void emit(enum log_level level, const char *format, va_list args)
{
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    pthread_mutex_lock(&lock);
    if (current)
        current(level, line, current_arg);
    pthread_mutex_unlock(&lock);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit(LOG_INFO, format, args);
    va_end(args);
}

void log_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit(LOG_WARN, format, args);
    va_end(args);
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit(LOG_ERROR, format, args);
    va_end(args);
}
