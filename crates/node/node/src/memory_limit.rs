//! Memory that this process may use: that of the machine, or what its control groups allow.
//!
//! Files in, a limit out. The process's own group and each group above it can have limits; the
//! smallest one applies. Version 1 and version 2 of control groups can be mounted at the same time.

use std::path::{Path, PathBuf};

/// Memory that a process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    /// Limit in bytes.
    pub(crate) bytes: u64,
    /// File that says so.
    pub(crate) file: PathBuf,
}

/// Version of control groups, with what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Returns the file with a group's limit in bytes. Without a limit, version 2 says `max` there, which
    /// is no number, and version 1 a number beyond any machine.
    fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Returns the group's path from a line of `/proc/self/cgroup`, `ID:CONTROLLERS:PATH`; `None` if the
    /// line is about something else.
    fn group(self, line: &str) -> Option<&str> {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_it = match self {
            Self::One => controllers.split(',').any(|it| it == "memory"),
            Self::Two => id == "0" && controllers.is_empty(),
        };
        is_it.then_some(path)
    }

    /// Returns the root and the mount point from a line of `/proc/self/mountinfo`; `None` if the line is
    /// about something else.
    fn mount(self, line: &str) -> Option<(&str, &str)> {
        let (place, system) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.next_back()?);
        let is_it = match self {
            Self::One => kind == "cgroup" && options.split(',').any(|it| it == "memory"),
            Self::Two => kind == "cgroup2",
        };
        is_it.then_some((root, point))
    }
}

impl MemoryLimit {
    /// Returns the least limit; `None` if not even the machine's memory can be read. `read` returns the
    /// text of a file.
    pub(crate) fn find(read: impl Fn(&Path) -> Option<String>) -> Option<Self> {
        let machine = Path::new("/proc/meminfo");
        let text = read(machine)?;
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = kib.trim().strip_suffix("kB")?.trim().parse().ok()?;
        let mut least = Self { bytes: kib * 1024, file: machine.to_owned() };
        for version in [Version::One, Version::Two] {
            for group in groups(version, &read) {
                let file = group.join(version.limit_file());
                let limit = read(&file).and_then(|text| text.trim().parse().ok());
                least.lower(limit, file);
                // Those of groups above that this process can't see are in here.
                let file = group.join("memory.stat");
                let limit = (version == Version::One).then(|| hierarchical(&read(&file)?));
                least.lower(limit.flatten(), file);
            }
        }
        Some(least)
    }

    fn lower(&mut self, limit: Option<u64>, file: PathBuf) {
        if let Some(bytes) = limit.filter(|limit| *limit < self.bytes) {
            *self = Self { bytes, file };
        }
    }
}

/// Returns the folders of the process's group and of those above it, as far as they are mounted.
fn groups(version: Version, read: impl Fn(&Path) -> Option<String>) -> Vec<PathBuf> {
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| version.group(line)) else { return Vec::new() };
    let Some((root, point)) = mounts.lines().find_map(|line| version.mount(line)) else {
        return Vec::new();
    };
    // In a container the mount may begin at the group itself, or anywhere else.
    let below = Path::new(path).strip_prefix(root).unwrap_or_else(|_| Path::new(""));
    let below = if below.starts_with("..") { Path::new("") } else { below };
    below.ancestors().map(|group| Path::new(point).join(group)).collect()
}

/// Returns the least limit of a group of version 1 and all above it.
fn hierarchical(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
    const UNIFIED: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
        30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const SPLIT: &str = "33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        34 30 0:29 / /sys/fs/cgroup/memory rw shared:15 - cgroup cgroup rw,memory\n\
        43 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn find(own: &str, mounts: &str, limits: &[(&str, &str)]) -> (u64, String) {
        let fixed = [MACHINE, ("/proc/self/cgroup", own), ("/proc/self/mountinfo", mounts)];
        let files: Vec<_> = fixed.iter().chain(limits).collect();
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(file.1.to_owned())
        };
        let found = MemoryLimit::find(read).unwrap();
        (found.bytes, found.file.display().to_string())
    }

    fn told(bytes: u64, file: &str) -> (u64, String) {
        (bytes, file.to_owned())
    }

    #[test]
    fn without_a_group_the_machine_counts() {
        assert_eq!(find("", "", &[]), told(8 << 30, "/proc/meminfo"));
        let max = [("/sys/fs/cgroup/user.slice/memory.max", "max\n")];
        assert_eq!(find("0::/user.slice\n", UNIFIED, &max), told(8 << 30, "/proc/meminfo"));
        // Version 1 without a limit.
        let none = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(find("4:memory:/\n0::/\n", SPLIT, &none), told(8 << 30, "/proc/meminfo"));
    }

    #[test]
    fn the_least_limit_of_the_own_group_and_all_above_holds() {
        let own = "0::/system.slice/spillway.service\n";
        let slice = ("/sys/fs/cgroup/system.slice/memory.max", "419430400\n");
        let service = ("/sys/fs/cgroup/system.slice/spillway.service/memory.max", "314572800\n");
        let of = |limits: &[(&str, &str)]| find(own, UNIFIED, limits);
        assert_eq!(of(&[slice]), told(400 << 20, slice.0));
        assert_eq!(of(&[slice, service]), told(300 << 20, service.0));
        let roomy = (service.0, "max\n");
        assert_eq!(of(&[slice, roomy]), told(400 << 20, slice.0));
    }

    #[test]
    fn version_1_has_a_tree_of_its_own_for_memory() {
        let own = "9:name=systemd:/a\n4:memory:/pods/one\n1:cpu,cpuacct:/b\n0::/\n";
        let limit = ("/sys/fs/cgroup/memory/pods/one/memory.limit_in_bytes", "314572800\n");
        assert_eq!(find(own, SPLIT, &[limit]), told(300 << 20, limit.0));
        let above = ("/sys/fs/cgroup/memory/pods/memory.limit_in_bytes", "104857600\n");
        assert_eq!(find(own, SPLIT, &[limit, above]), told(100 << 20, above.0));
        let stat = (
            "/sys/fs/cgroup/memory/pods/one/memory.stat",
            "cache 0\nhierarchical_memory_limit 52428800\nhierarchical_memsw_limit 1\n",
        );
        assert_eq!(find(own, SPLIT, &[limit, stat]), told(50 << 20, stat.0));
    }

    #[test]
    fn in_a_container_the_mount_may_begin_at_its_group() {
        let version_1 =
            "34 30 0:29 /docker/4f2 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let limit = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "314572800\n");
        let found = find("4:memory:/docker/4f2\n", version_1, &[limit]);
        assert_eq!(found, told(300 << 20, limit.0));
        // A namespace of control groups shows the own group as the root.
        let limit = ("/sys/fs/cgroup/memory.max", "314572800\n");
        assert_eq!(find("0::/\n", UNIFIED, &[limit]), told(300 << 20, limit.0));
        // The mount is of another container, or above the namespace.
        let found = find("0::/../../other\n", UNIFIED, &[limit]);
        assert_eq!(found, told(300 << 20, limit.0));
        let other = "30 23 0:26 /kubepods/a /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        let found = find("0::/kubepods/b\n", other, &[limit]);
        assert_eq!(found, told(300 << 20, limit.0));
    }

    #[test]
    fn this_process_has_a_limit() {
        let found = MemoryLimit::find(|path| std::fs::read_to_string(path).ok()).unwrap();
        assert!(found.bytes > 1 << 20, "{found:?}");
    }
}
