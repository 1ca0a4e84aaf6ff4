// pause holds a pod's namespaces open and, as PID 1 of a shared PID namespace, reaps orphans.
// It leaves with status 0 on SIGINT or SIGTERM.
//
// It is freestanding (no libc): one page of code, a few kB of memory per pod. The signals are
// blocked and waited for instead of handled: a blocked signal reaches even PID 1, whose default
// dispositions the kernel ignores.

#include <asm/unistd.h>
#include <linux/signal.h>
#include <linux/wait.h>

static long call4(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
#else
#error "pause: no system call convention for this architecture"
#endif
}

void _start(void)
{
	unsigned long set = 1UL << (SIGINT - 1) | 1UL << (SIGTERM - 1) | 1UL << (SIGCHLD - 1);

	call4(__NR_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
	for (;;) {
		long signal = call4(__NR_rt_sigtimedwait, (long)&set, 0, 0, sizeof set);

		if (signal == SIGINT || signal == SIGTERM)
			call4(__NR_exit, 0, 0, 0, 0);
		while (call4(__NR_wait4, -1, 0, WNOHANG, 0) > 0)
			;
	}
}
