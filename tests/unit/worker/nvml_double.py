"""A host with GPUs as the package ``pynvml`` shows it: answers what is scripted."""

from types import SimpleNamespace

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST, UNKNOWN = 3, 4, 9, 15, 999
TEXTS = {
    2: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    GPU_IS_LOST: "GPU is lost",
    UNKNOWN: "Unknown Error",
}
READ, WRITE, NVLINK, ATOMICS = range(4)


class NVMLError(Exception):
    """What the package raises: a number with a text."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return TEXTS[self.value]


def uuid(index):
    return f"GPU-{index}aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def gpu(index):
    """Answers of a healthy GPU, by the function that is asked; a callable is given the rest."""
    return {
        "nvmlDeviceGetUUID": uuid(index),
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"00000000:{index + 1:02X}:00.0"),
        "nvmlDeviceGetVbiosVersion": "96.00.D9.00.01",
        "nvmlDeviceGetMemoryInfo": lambda version: {
            0x02000028: SimpleNamespace(total=1000, used=10, free=900, reserved=90)
        }[version],
        "nvmlDeviceGetClockInfo": lambda kind: (345, 346, 3201)[kind],
        "nvmlDeviceGetMaxClockInfo": lambda kind: (1980, 1981, 3202)[kind],
        "nvmlDeviceGetTemperatureV": lambda sensor: (31,)[sensor],
        "nvmlDeviceGetPowerUsage": 76_543,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetPerformanceState": 0,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
        "nvmlDeviceGetTotalEccErrors": lambda error, counter: {(1, 0): 0, (1, 1): 4}[
            error, counter
        ],
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetNvLinkState": lambda link: (1 if link < 17 else 0) if link < 18 else error(2),
        "nvmlDeviceGetComputeRunningProcesses": [],
        "nvmlDeviceGetMPSComputeRunningProcesses": [],
    }


def error(value):
    raise NVMLError(value)


def fails(value):
    """An answer that is an error."""
    return lambda *_: error(value)


class Nvml:
    """The module; ``p2p`` gives the status of (source, target, kind), ``ok`` where it has none."""

    NVMLError = NVMLError

    def __init__(self, *gpus, p2p=None, host=None, init=None):
        self.gpus, self.p2p, self._init = gpus, p2p or {}, init
        self.open = self.closed = 0
        self.host = {
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlSystemGetNVMLVersion": "13.580.159.04",
            "nvmlDeviceGetCount": len(gpus),
            **(host or {}),
        }

    def nvmlInit(self):
        if self._init:
            error(self._init)
        self.open += 1

    def nvmlShutdown(self):
        assert self.open
        self.open -= 1
        self.closed += 1

    def nvmlDeviceGetHandleByIndex(self, index):
        assert type(index) is int
        if callable(self.gpus[index]):
            self.gpus[index]()
        return SimpleNamespace(index=index)

    def nvmlDeviceGetP2PStatus(self, source, target, kind):
        # the package would hand anything else to C and fail there
        assert type(kind) is int
        answer = self.p2p.get((source.index, target.index, kind), 0)
        return answer() if callable(answer) else answer

    def nvmlDeviceGetTopologyCommonAncestor(self, source, target):
        assert source.index != target.index
        return 50

    def __getattr__(self, name):
        def answer(*arguments):
            assert self.open, f"{name} before nvmlInit"
            if name in self.host:
                found, rest = self.host[name], arguments
            else:
                found, rest = self.gpus[arguments[0].index][name], arguments[1:]
            return found(*rest) if callable(found) else found

        known = {*self.host, *(key for one in self.gpus if isinstance(one, dict) for key in one)}
        if name not in known:
            raise AttributeError(name)
        return answer
