"""Confine the calling process, and all that it starts, before it becomes a responder's program.

The launcher imports this file from its folder, with `-I -S`. So it needs nothing but the standard library and imports
nothing of core. What to allow is decided in `core/engines/confinement.py` and arrives as text, see `apply`.

The kernel does the work: Landlock for files, signals and abstract sockets (`landlock(7)`), a seccomp filter for system
calls that no responder needs (`seccomp(2)`), and no capabilities (`capabilities(7)`). What is refused fails inside the
program as an ordinary error: EACCES for Landlock, EPERM for seccomp.
"""

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_NO_NEW_PRIVS = 38


class ConfinementError(OSError):
    """The kernel would not confine this process."""


def apply(ruleset: str, program: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Confine this process as `ruleset` says, for good. Returns what it has to execute as `program`. Raises OSError.

    A ruleset has a line for each path, `read PATH` or `write PATH`, and the line `network` if there is to be any. An
    empty one only forbids new privileges. With lines `bwrap ARGUMENT` nothing is confined yet: bubblewrap does it, as
    the program that is returned.
    """
    lines = [line.partition(" ") for line in ruleset.splitlines()]
    network = any(word == "network" for word, _, _ in lines)
    if wrapper := [argument for word, _, argument in lines if word == "bwrap"]:
        return (wrapper[0], "--seccomp", str(_file_of(_filter(network=network))), *wrapper[1:], "--", *program)
    forbid_new_privileges()
    if ruleset:
        drop_capabilities()
        paths = {kind: [path for word, _, path in lines if word == kind] for kind in ("read", "write")}
        restrict(paths["read"], paths["write"])
        filter_system_calls(network=network)
    return program


def forbid_new_privileges() -> None:
    """From here on no program gets more rights than its caller had, whatever its file says. Raises ConfinementError."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise ConfinementError(number, f"the kernel refuses to confine it: {os.strerror(number)}")
    return result


# --- Landlock (linux/landlock.h) ------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""What a rule for a file, not a folder, may name."""

_FILE_RIGHTS = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 4: 1 << 15, 5: 1 << 16}
"""By version of the interface: one more than the highest right on files that the kernel knows."""

_SCOPES = 1 | 2  # abstract sockets, signals

COMPLETE = 6
"""The version of Landlock that also holds signals back (Linux 6.12)."""


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 where it has none, or has it switched off."""
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def restrict(readable: list[str], writable: list[str]) -> None:
    """Restrict this process to these folders and files, permanently; missing ones are left out.

    It may read and execute what is `readable`, and read and write, but not execute, what is `writable`. It may signal
    only what it starts itself. New privileges must be forbidden before. Raises ConfinementError.
    """
    version = landlock_version()
    if not version:
        raise ConfinementError("this kernel has no Landlock")
    every = _FILE_RIGHTS.get(version, 1 << 16) - 1
    attributes = struct.pack("QQQ", every, 0, _SCOPES if version >= COMPLETE else 0)
    size = 24 if version >= COMPLETE else 16 if version >= 4 else 8
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    try:
        for path in readable:
            _allow(ruleset, path, _READ & every)
        for path in writable:
            _allow(ruleset, path, every & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK))
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        is_folder = os.path.isdir(f"/proc/self/fd/{path_fd}")
        rule = struct.pack("=Qi", rights if is_folder else rights & _OF_FILES, path_fd)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(path_fd)


# --- capabilities ---------------------------------------------------------------------------------------------------

_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522


def drop_capabilities() -> None:
    """Give up all capabilities, for this process and for all that it will execute. Raises ConfinementError."""
    number = 0
    while _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0:  # without the right to, there are none to give up
        number += 1
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)))


# --- system calls (linux/seccomp.h, linux/filter.h) -----------------------------------------------------------------

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# x86_64, aarch64; -1 where there is none. Landlock holds back neither the owner of a file from its mode, owner and
# attributes nor one process of an account from the limits and priority of another, nor what is shared by System V's
# ids or a queue's name, which outlives its program and counts for none of its limits.
_DENIED = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chown": (92, -1),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, -1),
    "lookup_dcookie": (212, 18),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "mq_open": (240, 180),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_IGNORED = {"chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)}
"""Seem to succeed: many programs set the mode of what they wrote, and would not stand an error."""

_OF_ITSELF_ONLY = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
}
"""Their first argument is a process; 0 is the calling one."""

_SETPRIORITY = (141, 140)
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW... flag of clone(2)
_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK: the last tells resolvers which addresses the machine has
_X32 = 0x40000000  # numbers from here on are those of the x32 interface, which would pass by the list

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM, _ENOSYS = 0x00050000 | 1, 0x00050000 | 38
_DONE = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


def can_filter() -> bool:
    """Whether the system calls of this architecture are known here."""
    return os.uname().machine in _AUDIT_ARCH


def filter_system_calls(*, network: bool) -> None:
    """Refuse the calls that no responder needs, for good; without `network` every socket, else all but internet ones.

    Raises ConfinementError.
    """
    code = _filter(network=network)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // _STEP.size, ctypes.addressof(buffer))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0))


def _filter(*, network: bool) -> bytes:
    """The filter as the kernel takes it. Raises ConfinementError."""
    machine = os.uname().machine
    if machine not in _AUDIT_ARCH:
        raise ConfinementError(f"the system calls of {machine} are not known here")
    program = _program(_AUDIT_ARCH[machine], list(_AUDIT_ARCH).index(machine), network=network)
    return b"".join(_STEP.pack(*step) for step in program)


def _file_of(content: bytes) -> int:
    """A descriptor from which a program that is executed next can read `content`."""
    read_end, write_end = os.pipe()  # which holds 64 KiB, and a filter has one or two
    os.write(write_end, content)
    os.close(write_end)
    os.set_inheritable(read_end, True)
    return read_end


_STEP = struct.Struct("HBBI")

_Step = tuple[int, int, int, int]
"""An instruction: code, how many to skip when true, when false, and its constant."""


def _program(architecture: int, column: int, *, network: bool) -> list[_Step]:
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if column == 0:
        steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _EPERM)]
    for numbers in _DENIED.values():
        if numbers[column] >= 0:
            steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _EPERM)]
    for numbers in _IGNORED.values():
        if numbers[column] >= 0:
            steps += [(_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _DONE)]
    for numbers in _OF_ITSELF_ONLY.values():
        steps += [
            (_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 0, 1, 0),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _EPERM),
        ]
    steps += [
        (_EQUAL, 0, 6, _SETPRIORITY[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, _SECOND_ARGUMENT),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    # Its flags lie in memory, where no filter can look; libraries fall back to clone when there is no clone3.
    steps += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ENOSYS)]
    steps += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    # Local sockets are refused too: one of root's, such as a container runtime's, would lead out of any confinement.
    families = _FAMILIES if network else ()
    allow = len(families)
    steps += [(_EQUAL, 0, allow + 2, _SOCKET[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    steps += [(_EQUAL, allow - n, 0, family) for n, family in enumerate(families)]
    steps += [(_RETURN, 0, 0, _EPERM)]
    return [*steps, (_RETURN, 0, 0, _ALLOW)]
