//! Description of the machine, for pages of results.

/// Returns the number of cores that this process may use; 0 if the system does not report it.
#[must_use]
pub fn core_count() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Returns the processor's model name; empty if the system does not report it.
#[must_use]
pub fn processor_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or("", |model| model.trim_start_matches([' ', '\t', ':'])).to_owned()
}
