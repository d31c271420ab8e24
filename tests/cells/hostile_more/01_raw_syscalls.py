import ctypes, platform, sys
if platform.machine() != "x86_64": sys.exit()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = dict(io_uring_setup=425, memfd_create=319, userfaultfd=323, ptrace=101, process_vm_readv=310, process_vm_writev=311, pidfd_open=434, pidfd_getfd=438, pidfd_send_signal=424, bpf=321, perf_event_open=298, keyctl=250, add_key=248, unshare=272, setns=308, mount=165, chroot=161, pivot_root=155, kexec_load=246, init_module=175, reboot=169, open=2, openat=257, openat2=437, creat=85, execve=59, execveat=322, fork=57, vfork=58, socket=41, connect=42, bind=49, kill=62, tkill=200, tgkill=234, rt_sigqueueinfo=129, setuid=105, setresuid=117, setns2=308, name_to_handle_at=303, open_by_handle_at=304, fanotify_init=300, inotify_init1=294, timerfd_create=283, signalfd4=289, memfd_secret=447, landlock_create_ruleset=444, shmget=29, msgget=68, semget=64, mq_open=240, personality=135, syslog=103, sysfs=139, acct=163, swapon=167, quotactl=179, uname=63, setrlimit=160, sched_setaffinity=203, setpriority=141, ioprio_set=251, mknod=133, mkdir=83, symlink=88, link=86, rename=82, unlink=87, truncate=76, chmod=90, chown=92, utime=132, setxattr=188, sendmsg=46, sendmmsg=307, recvmsg=47, splice=275, vmsplice=278, tee=276, copy_file_range=326, sendfile=40, process_madvise=440, move_pages=279, mbind=237, set_mempolicy=238, modify_ldt=154, arch_prctl=158, iopl=172, clone3=435, alarm=37, setitimer=38, timer_create=222, ftruncate=77, fallocate=285, dup2=33, dup3=292, pipe2=293, socketpair_dgram=0)
got = {}
for name, number in X86.items():
    if not number:
        continue
    ctypes.set_errno(0)
    r = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    if r >= 0:
        got[name] = r
print("reached by number:", got)
assert set(got) <= {"arch_prctl"}, ("CALLED", got)
