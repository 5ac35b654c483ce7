/* sanitized.h: defines SANITIZED as 1 in a build with a sanitizer, and as 0 in others. Sanitizers replace malloc,
 * reserve much address space, and count leaks themselves, so a test that does one of these leaves that part out if it
 * is 1. */
#ifndef SANITIZED_H
#define SANITIZED_H
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
#endif
