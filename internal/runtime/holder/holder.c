// holder keeps the namespaces of a pod open. In a shared PID namespace it is PID 1, where the kernel reaps the orphans
// of containers because the holder ignores SIGCHLD.
//
// Usage: holder ID STEP... The ID is for people who read a list of processes. Each step is a letter with its value:
//
//	c6          moves to the cgroup whose file tasks, or cgroup.procs, is descriptor 6
//	n6          joins the namespace of descriptor 6
//	u100663296  makes new namespaces (flags of clone(2))
//	r           becomes root of the joined user namespace
//	hNAME       sets the host name
//	wPATH=VALUE writes a sysctl; PATH is below descriptor 3, which is /proc/sys
//	f536870912  continues in a child, made with these flags of clone(2), and ends
//	i65535      drops all groups and capabilities and becomes this user and group
//	p           is the last step in a pause container, which has a starter of its own: waits for ever, without a report
//
// It reports on standard output, in pairs of 32-bit numbers: the process ID of the child and 0; and 0 and 0 after the
// last step. The two reports have no order. If a step fails, it reports the negative error number and the position of
// the step, and ends. Then it waits for a byte on standard input. If the input ends first, the holder ends: its starter
// has ended or no longer wants it.
//
// It is freestanding (no libc): one page of code, a few kB of memory per pod. At last it forbids itself every system
// call but the one that it waits in.

#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/signal.h>
#include <stddef.h>

#define WRITE_CLOEXEC 02000001
#define FILES 32

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n");

static long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl run\n");

static long call(long number, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}
#else
#error "holder: no system call convention for this architecture"
#endif

static void report(int value, int step)
{
	int pair[2] = {value, step};

	call(__NR_write, 1, (long)pair, sizeof pair, 0, 0);
}

static long number(const char *text)
{
	long n = 0;

	for (; *text; text++)
		n = n * 10 + (*text - '0');
	return n;
}

static long length(const char *text)
{
	long n = 0;

	while (text[n])
		n++;
	return n;
}

static long become(long id)
{
	long failed = call(__NR_setgroups, 0, 0, 0, 0, 0);

	if (!failed)
		failed = call(__NR_setresgid, id, id, id, 0, 0);
	if (!failed)
		failed = call(__NR_setresuid, id, id, id, 0, 0);
	return failed;
}

static long sysctl(char *assignment)
{
	char *value = assignment;
	long file, wrote;

	while (*value != '=')
		value++;
	*value++ = 0;
	file = call(__NR_openat, 3, (long)assignment, WRITE_CLOEXEC, 0, 0);
	if (file < 0)
		return file;
	wrote = call(__NR_write, file, (long)value, length(value), 0, 0);
	call(__NR_close, file, 0, 0, 0, 0);
	return wrote < 0 ? wrote : 0;
}

static long move(long file)
{
	long wrote = call(__NR_write, file, (long)"0", 1, 0, 0);

	return wrote < 0 ? wrote : 0;
}

static long fork(long flags)
{
	long child = call(__NR_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (child > 0) {
		report(child, 0);
		call(__NR_exit_group, 0, 0, 0, 0, 0);
	}
	return child;
}

// adopt has the kernel reap the children that the holder inherits.
static void adopt(void)
{
	unsigned long reap[4] = {(unsigned long)SIG_IGN, SA_NOCLDWAIT, 0, 0};

	call(__NR_rt_sigaction, SIGCHLD, (long)reap, 0, sizeof(unsigned long), 0);
}

// confine allows only ppoll(2), in which the holder waits. On a kernel without seccomp it does nothing.
static void confine(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ppoll, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

	call(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	call(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter, 0, 0);
}

__attribute__((noreturn)) static void stay(void)
{
	for (long file = 0; file < FILES; file++)
		call(__NR_close, file, 0, 0, 0, 0);
	confine();
	for (;;)
		call(__NR_ppoll, 0, 0, 0, 0, sizeof(unsigned long));
}

static long step(char *text)
{
	char *value = text + 1;

	switch (*text) {
	case 'c':
		return move(number(value));
	case 'n':
		return call(__NR_setns, number(value), 0, 0, 0, 0);
	case 'u':
		return call(__NR_unshare, number(value), 0, 0, 0, 0);
	case 'r':
		return become(0);
	case 'h':
		return call(__NR_sethostname, (long)value, length(value), 0, 0, 0);
	case 'w':
		return sysctl(value);
	case 'f':
		return fork(number(value));
	case 'p':
		adopt();
		stay();
	default:
		return become(number(value));
	}
}

__attribute__((used, noreturn)) void run(long *stack)
{
	long count = stack[0];
	char **arguments = (char **)(stack + 1);
	char byte;

	call(__NR_prctl, PR_SET_NAME, (long)"holder", 0, 0, 0);
	for (long i = 2; i < count; i++) {
		long failed = step(arguments[i]);

		if (failed < 0) {
			report(failed, i - 2);
			call(__NR_exit_group, 1, 0, 0, 0, 0);
		}
	}
	adopt();
	report(0, 0);
	if (call(__NR_read, 0, (long)&byte, 1, 0, 0) != 1)
		call(__NR_exit_group, 1, 0, 0, 0, 0);
	stay();
}
