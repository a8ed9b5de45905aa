//! Adapters that a server has in memory, read from its page.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mapping::number_in;
use super::selector::Selector;
use super::text::{Labels, samples};

/// Most adapters that are read from one page.
const ADAPTERS_MAX: usize = 1_024;
/// Longest name of an adapter that is read, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Metric that names adapters in its labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterMapping {
    /// Metric to read. Of its samples those with the largest number count, if that is above 0: engines
    /// leave outdated samples on the page, and give each one the time at which it was written.
    pub metric: Selector,
    /// Labels that hold names, separated by commas.
    pub labels: Vec<String>,
    /// Label with the number of adapters that fit in the server's memory. With it, an adapter counts
    /// as loaded until so many others were named after it; without it, while it is named.
    #[serde(default)]
    pub slots: Option<String>,
}

/// Adapters that a page names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterReport {
    /// Names of the adapters.
    pub names: BTreeSet<String>,
    /// Number of adapters that fit in the server's memory; `None` if the page names all that are
    /// there.
    pub slots: Option<usize>,
}

impl AdapterMapping {
    /// Reads a page; `None` if it has no such metric.
    pub(super) fn read(&self, page: &[u8]) -> Option<AdapterReport> {
        let mut newest = 0.0;
        let mut report = None;
        for sample in samples(page, |name| name == self.metric.name().as_bytes()) {
            if !self.metric.matches(sample.labels) {
                continue;
            }
            let report = report.get_or_insert_with(AdapterReport::default);
            if sample.value > newest {
                (newest, *report) = (sample.value, AdapterReport::default());
            }
            if sample.value == newest && newest > 0.0 {
                self.take(sample.labels, report);
            }
        }
        report
    }

    fn take(&self, labels: &[u8], report: &mut AdapterReport) {
        let slots = self.slots.as_ref().and_then(|slots| number_in(labels, slots));
        // The cast saturates, and leaves out what is below 0.
        report.slots = report.slots.max(slots.map(|slots| (slots as usize).min(ADAPTERS_MAX)));
        for (_, text) in Labels(labels).filter(|(label, _)| self.is_wanted(label)) {
            let Ok(text) = std::str::from_utf8(&text) else { continue };
            let names = text
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
            let left = ADAPTERS_MAX.saturating_sub(report.names.len());
            report.names.extend(names.take(left).map(str::to_owned));
        }
    }

    fn is_wanted(&self, label: &[u8]) -> bool {
        self.labels.iter().any(|wanted| wanted.as_bytes() == label)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::Mapping;
    use super::*;
    use crate::kind::ServerKind;

    fn read(page: &str) -> Option<(Vec<String>, Option<usize>)> {
        let report = Mapping::of(ServerKind::Vllm).unwrap().read_adapters(page.as_bytes())?;
        Some((report.names.into_iter().collect(), report.slots))
    }

    fn named(names: &[&str], slots: Option<usize>) -> Option<(Vec<String>, Option<usize>)> {
        Some((names.iter().map(|name| (*name).to_owned()).collect(), slots))
    }

    #[test]
    fn the_newest_sample_names_adapters_that_run_and_that_wait() {
        let page = r#"
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="2",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e+09
vllm:lora_requests_info{max_lora="2",running_lora_adapters="a, b",waiting_lora_adapters="c"} 1.8e+09
vllm:lora_requests_info{max_lora="2",running_lora_adapters="older",waiting_lora_adapters=""} 1.6e+09
"#;
        assert_eq!(read(page), named(&["a", "b", "c"], Some(2)));
        let idle = "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"\"} 1.8e+09\n";
        assert_eq!(read(idle), named(&[], Some(4)));
    }

    #[test]
    fn newer_engines_list_what_is_loaded() {
        let page = r#"
vllm:lora_adapter_loaded{adapter_name="a",level="gpu",pinned="false",rank="8"} 1.0
vllm:lora_adapter_loaded{adapter_name="b",level="cpu",pinned="false",rank="8"} 1.0
vllm:lora_adapter_loaded{adapter_name="gone",level="gpu",pinned="false",rank="8"} 0.0
vllm:lora_requests_info{max_lora="2",running_lora_adapters="x",waiting_lora_adapters=""} 1.7e+09
"#;
        assert_eq!(read(page), named(&["a", "b"], None), "the list is exact");
        let none = "vllm:lora_adapter_loaded{adapter_name=\"gone\",level=\"gpu\"} 0\n";
        assert_eq!(read(none), named(&[], None));
    }

    #[test]
    fn a_page_without_adapters_tells_nothing_of_them() {
        assert_eq!(read("vllm:num_requests_waiting 1\n"), None);
        let tgi = Mapping::of(ServerKind::Tgi).unwrap();
        assert_eq!(tgi.read_adapters(b"vllm:lora_requests_info{max_lora=\"2\"} 1\n"), None);
    }

    #[test]
    fn broken_labels_and_endless_lists_cost_no_more_than_they_may() {
        for (slots, expected) in [("-1", 0), ("1e300", ADAPTERS_MAX), ("2.9", 2)] {
            let page = format!("vllm:lora_requests_info{{max_lora=\"{slots}\"}} 1\n");
            assert_eq!(read(&page), named(&[], Some(expected)), "{slots}");
        }
        let page = "vllm:lora_requests_info{max_lora=\"many\",running_lora_adapters=\"a\"} 1\n";
        assert_eq!(read(page), named(&["a"], None));
        let names: Vec<_> = (0..5_000).map(|index| format!("a{index}")).collect();
        let names = names.join(",");
        let page = format!("vllm:lora_requests_info{{running_lora_adapters=\"{names}\"}} 1\n");
        assert_eq!(read(&page).unwrap().0.len(), ADAPTERS_MAX);
    }
}
