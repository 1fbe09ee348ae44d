"""The program of a hostile responder: tries what it is told, and reports with which error each attempt failed."""

# Foreign code, as short as it can be: it needs no types, and does what the rules forbid.
# mypy: ignore-errors
# ruff: noqa

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time

job = sys.argv[1]
parameters = json.load(open(f"{job}/input/input.json"))["parameters"]
place = parameters["place"]
victim, core = parameters["victim"], parameters["core"]
supervisor = os.getppid() if os.getppid() > 1 else core  # 1 is bwrap, in a namespace of its own
libc = ctypes.CDLL(None, use_errno=True)
site = next((path for path in sys.path if path.endswith("site-packages")), f"{place}/environment")


def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def write(path, how="a"):
    with open(path, how) as file:
        file.write("import os; os.environ['PLANTED'] = '1'\n")


def open_to_all(path):
    before = os.stat(path).st_mode
    os.chmod(path, before ^ 0o006)
    try:
        descriptor = os.open(path, os.O_RDONLY)
        os.fchmod(descriptor, before ^ 0o005)
    except PermissionError:
        pass  # the first one may have worked
    if os.stat(path).st_mode == before:
        raise PermissionError(errno.EPERM, "it had no effect")


ACL = struct.pack(
    "<I" + "HHI" * 5,
    2,
    *(1, 6, 2**32 - 1),
    *(2, 6, 65533),
    *(4, 0, 2**32 - 1),
    *(16, 6, 2**32 - 1),
    *(32, 0, 2**32 - 1),
)


def follow(path):
    os.symlink(path, f"{job}/output/followed")
    read(f"{job}/output/followed")


def rename_over(path):
    write(f"{job}/output/mine")
    os.rename(f"{job}/output/mine", path)


def read_memory(pid):
    target = ctypes.create_string_buffer(8)

    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    mine, other = Part(ctypes.addressof(target), 8), Part(0x400000, 8)
    called(libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(other), 1, 0))


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.connect(address)


def send(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", address)


def capabilities():
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file)
    held = {name: status[name].strip() for name in ("CapPrm", "CapEff", "CapAmb")}
    if set(held.values()) == {"0" * 16} and status["NoNewPrivs"].strip() == "1":
        raise PermissionError(errno.EPERM, "it has none, and gets none")


def descriptors():
    known = {"/dev/null", "/printed"}
    names = [os.readlink(f"/proc/self/fd/{name}") for name in ("0", "1", "2")]
    more = []
    for name in os.listdir("/proc/self/fd"):
        try:
            more.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # of the listing itself
    if len(more) == len(names) and all(name in known or name.endswith("/printed") for name in more):
        raise PermissionError(errno.EBADF, "it has no other")


def variables():
    allowed = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PWD"}
    if set(os.environ) <= allowed:
        raise PermissionError(errno.ENODATA, "it has no other")


QUICK = {
    "read the settings": lambda: read(f"{place}/responder-bot.toml"),
    "read the settings through a link": lambda: follow(f"{place}/responder-bot.toml"),
    "read the settings by a hard link": lambda: os.link(f"{place}/responder-bot.toml", f"{job}/output/linked"),
    "read the settings through /proc": lambda: read(f"/proc/{victim}/root{place}/responder-bot.toml"),
    "read the database": lambda: read(f"{place}/core.db"),
    "read another job": lambda: read(f"{os.path.dirname(os.path.dirname(job))}/local-99/run/input/input.json"),
    "read core's notes on its job": lambda: read(f"{os.path.dirname(job)}/facts.json"),
    "read another environment": lambda: read(f"{place}/environment/secret.py"),
    "read another responder": lambda: read(f"{place}/responders/Other/Other.json"),
    "read a home folder": lambda: read(f"{place}/home/.ssh/id"),
    "read /etc/shadow": lambda: read("/etc/shadow"),
    "read variables of another process": lambda: read(f"/proc/{victim}/environ"),
    "read variables of core": lambda: read(f"/proc/{core}/environ"),
    "read memory of another process": lambda: read(f"/proc/{victim}/mem"),
    "read memory of core": lambda: read(f"/proc/{core}/mem"),
    "read memory of its supervisor": lambda: read(f"/proc/{supervisor}/mem"),
    "read memory by process_vm_readv": lambda: read_memory(core),
    "list descriptors of core": lambda: os.listdir(f"/proc/{core}/fd"),
    "hold capabilities": capabilities,
    "hold a descriptor of core": descriptors,
    "hold a variable of core": variables,
    "write the settings": lambda: write(f"{place}/responder-bot.toml"),
    "rename over the settings": lambda: rename_over(f"{place}/responder-bot.toml"),
    "write the database": lambda: write(f"{place}/core.db"),
    "remove the database": lambda: os.unlink(f"{place}/core.db"),
    "open the database to all": lambda: open_to_all(f"{place}/core.db"),
    "open the database to all by a list": lambda: os.setxattr(f"{place}/core.db", "system.posix_acl_access", ACL),
    "give the database away": lambda: os.chown(f"{place}/core.db", os.getuid(), os.getgid()),
    "open its environment to all": lambda: open_to_all(site),
    "open its own program to all": lambda: open_to_all(__file__),
    "stop another job": lambda: write(f"{os.path.dirname(os.path.dirname(job))}/local-99/stop"),
    "write core's notes on its job": lambda: write(f"{os.path.dirname(job)}/stop"),
    "write its input": lambda: write(f"{job}/input/input.json"),
    "write its own program": lambda: write(__file__),
    "plant a .pth": lambda: write(f"{site}/planted.pth"),
    "plant sitecustomize": lambda: write(f"{site}/sitecustomize.py"),
    "plant a module beside its program": lambda: write(os.path.join(os.path.dirname(__file__), "json.py")),
    "plant in the standard library": lambda: write(os.path.join(os.path.dirname(os.__file__), "planted.py")),
    "write shared memory": lambda: write("/dev/shm/planted"),
    "keep shared memory": lambda: called(libc.shmget(0, 4096, 0o1600)),
    "keep messages": lambda: called(libc.msgget(0, 0o1600)),
    "keep semaphores": lambda: called(libc.semget(0, 1, 0o1600)),
    "keep named messages": lambda: called(libc.mq_open(b"/planted", os.O_CREAT | os.O_RDWR, 0o600, None)),
    "write the kernel's settings": lambda: open("/proc/sys/kernel/core_pattern", "r+"),
    "signal another process": lambda: os.kill(victim, 0),
    "signal core": lambda: os.kill(core, 0),
    "signal its supervisor": lambda: os.kill(supervisor, 0),
    "trace another process": lambda: called(libc.ptrace(16, victim, 0, 0)),
    "trace core": lambda: called(libc.ptrace(0x4206, core, 0, 0)),
    "limit core": lambda: resource.prlimit(
        core, resource.RLIMIT_NOFILE, resource.prlimit(core, resource.RLIMIT_NOFILE)
    ),
    "slow core down": lambda: os.setpriority(os.PRIO_PROCESS, core, os.getpriority(os.PRIO_PROCESS, core)),
    "slow the account down": lambda: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0)),
    "pin core": lambda: os.sched_setaffinity(core, os.sched_getaffinity(core)),
    "schedule core": lambda: os.sched_setscheduler(core, os.SCHED_OTHER, os.sched_param(0)),
    "become another account": lambda: os.setuid(65533 if os.getuid() == 0 else 0),
    "mount": lambda: called(libc.mount(b"none", f"{job}/tmp".encode(), b"tmpfs", 0, None)),
    "make a user namespace": lambda: called(libc.unshare(0x10000000)),
    "make a device": lambda: os.mknod(f"{job}/tmp/device", 0o020600, os.makedev(1, 3)),
    "open a raw socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3),
    "connect to a local socket": lambda: connect(socket.AF_UNIX, f"{place}/socket"),
    "send to a local socket": lambda: send(socket.AF_UNIX, f"{place}/socket"),
    "connect to an abstract socket": lambda: connect(socket.AF_UNIX, parameters["abstract"]),
    "connect by IPv4": lambda: connect(socket.AF_INET, ("127.0.0.1", parameters["port"])),
    "connect by IPv6": lambda: connect(socket.AF_INET6, ("::1", parameters["port"])),
    "send by UDP": lambda: send(socket.AF_INET, ("127.0.0.1", parameters["port"])),
}


def attempt_all(names):
    found = {}
    for name in names:
        try:
            QUICK[name]()
        except OSError as error:
            found[name] = errno.errorcode.get(error.errno, str(error))
        except Exception as error:
            found[name] = f"broken: {error!r}"
        else:
            found[name] = "done"
    return found


def fill_disk():
    for number in range(100):
        with open(f"{job}/tmp/{number}", "wb") as file:
            file.write(bytes(2 << 20))
    time.sleep(60)


def fill_disk_without_names():
    held = []
    for number in range(100):
        held.append(open(f"{job}/tmp/{number}", "wb"))
        os.unlink(f"{job}/tmp/{number}")
        held[-1].write(bytes(2 << 20))
        held[-1].flush()
    time.sleep(60)


def fill_disk_by_maps():
    held = []
    for number in range(100):
        with open(f"{job}/tmp/{number}", "w+b") as file:
            file.truncate(2 << 20)
            held.append(mmap.mmap(file.fileno(), 2 << 20))
        os.unlink(f"{job}/tmp/{number}")
        held[-1][:] = b"x" * (2 << 20)
    time.sleep(60)


def fill_memory_files():
    held = [os.memfd_create(str(number)) for number in range(100)]
    for descriptor in held:
        os.write(descriptor, bytes(2 << 20))
    time.sleep(60)


def make_files():
    for number in range(5_000):
        open(f"{job}/tmp/{number}", "w").close()
    time.sleep(60)


def make_deep_folders():
    for _ in range(5_000):
        os.mkdir("d")
        os.chdir("d")
    time.sleep(60)


def fork_bomb():
    """Bounded, lest it takes the machine with it if nobody ends it."""
    end = time.monotonic() + 20
    refused = 0
    for _ in range(1_000):
        try:
            if os.fork() == 0:
                os.setsid()
                time.sleep(max(0.0, end - time.monotonic()))
                os._exit(0)
        except OSError:
            refused += 1
            if refused > 10:
                return
    time.sleep(max(0.0, end - time.monotonic()))


def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.execve(sys.executable, ["sleeper", "-c", f"import time; time.sleep({parameters['sleep']})"], {})
        os._exit(0)
    os.wait()


def poison():
    """Leaves what the next run would import, if it shared this HOME, or inherited these variables."""
    os.environ["PYTHONPATH"] = f"{job}/tmp"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    user = f"{os.environ['HOME']}/.local/lib/{version}/site-packages"
    os.makedirs(user)
    write(f"{user}/usercustomize.py")
    write(f"{job}/tmp/sitecustomize.py")


def chdir_then(action):
    os.chdir(f"{job}/tmp")
    action()


SLOW = {
    "fill the disk": fill_disk,
    "fill the disk with files without names": fill_disk_without_names,
    "fill the disk by maps": fill_disk_by_maps,
    "fill the memory with files": fill_memory_files,
    "make many files": make_files,
    "make deep folders": lambda: chdir_then(make_deep_folders),
    "fork without end": fork_bomb,
    "leave a daemon": daemon,
    "poison HOME and variables": poison,
    "a link as output": lambda: os.symlink(f"{place}/responder-bot.toml", f"{job}/output/output.json"),
    "a named pipe as output": lambda: os.mkfifo(f"{job}/output/output.json"),
    "a folder as output": lambda: os.mkdir(f"{job}/output/output.json"),
    "nothing": lambda: None,
}

full = {"planted": "PLANTED" in os.environ}
if parameters["attempt"] == "quick":
    full["found"] = attempt_all(parameters["names"])
else:
    SLOW[parameters["attempt"]]()
if not os.path.lexists(f"{job}/output/output.json"):
    with open(f"{job}/output/output.json", "w") as file:
        json.dump({"success": True, "full": full}, file)
subprocess.run(["true"], check=True)
