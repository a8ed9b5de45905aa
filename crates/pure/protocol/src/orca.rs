//! Load reports in replies: the header `endpoint-load-metrics` of ORCA.
//!
//! | key (under `named_metrics` or `utilization`, or at the top) | field |
//! |---|---|
//! | `num_requests_waiting` (vLLM), `num_queue_reqs`, `queue_size`, `queued` | `queued` |
//! | `num_requests_running`, `num_running_reqs`, `running` | `running` |
//! | `kv_cache_usage_perc` (vLLM), `gpu_cache_usage_perc`, `kv_cache_utilization`, `kv_cache`, `token_usage`, `kv_use` | `kv_use` |
//! | `gpu_utilization`, `gpu`, `gpu_use`, else `application_utilization` | `gpu_use` |
//! | `gpu_memory_utilization`, `gpu_memory`, `gpu_memory_use` | `gpu_memory_use` |
//! | `pending`, `pending_requests`, `pending_weight` | `pending` |

use serde_json::Value;
use spillway_types::LoadReport;

/// Longest header that is read, in bytes; reports have a few hundred.
const HEADER_BYTES_MAX: usize = 8 << 10;

/// Parses the value of the header: `TEXT key=value, ...` or `JSON {...}`. The binary form, a
/// protocol buffer in base64, has a header of its own and is not read.
///
/// `cpu_utilization` and `mem_utilization` are of the host, and `rps_fractional` and `eps` are
/// rates: they say nothing about a GPU's load and are left out. Returns `None` if nothing useful is
/// left.
#[must_use]
pub fn parse_orca(header: &str) -> Option<LoadReport> {
    if header.len() > HEADER_BYTES_MAX {
        return None;
    }
    let header = header.trim();
    let (format, rest) = header.split_once(|c: char| c.is_ascii_whitespace())?;
    let mut reading = OrcaReading::default();
    if format.eq_ignore_ascii_case("text") {
        for (key, value) in rest.split(',').filter_map(|pair| pair.split_once('=')) {
            if let Ok(value) = value.trim().parse() {
                reading.note(last_part(key.trim()), value);
            }
        }
    } else if format.eq_ignore_ascii_case("json") {
        reading.note_all(&serde_json::from_str(rest).ok()?, 0);
    }
    reading.into_report()
}

/// Deepest level of metrics: groups are at the top of the JSON form, and nothing useful is deeper.
const DEPTH_MAX: usize = 1;

/// Returns the last part of a key: `named_metrics.x` and `utilization.x` become `x`.
fn last_part(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, last)| last)
}

/// Report in progress.
#[derive(Debug, Default)]
struct OrcaReading {
    report: LoadReport,
    /// Value that replaces the GPU's use if that is not reported.
    application: Option<f32>,
}

impl OrcaReading {
    fn note_all(&mut self, value: &Value, depth: usize) {
        for (key, value) in value.as_object().into_iter().flatten() {
            match value {
                Value::Number(number) => {
                    if let Some(number) = number.as_f64() {
                        self.note(last_part(key), number);
                    }
                }
                Value::Object(_) if depth < DEPTH_MAX => self.note_all(value, depth + 1),
                _ => {}
            }
        }
    }

    fn note(&mut self, key: &str, value: f64) {
        let value = value as f32;
        // A replica may send anything; only finite figures from 0 on count.
        if !value.is_finite() || value < 0.0 {
            return;
        }
        let report = &mut self.report;
        let (field, is_share) = match key {
            "num_requests_waiting" | "num_queue_reqs" | "queue_size" | "queued" => {
                (&mut report.queued, false)
            }
            "num_requests_running" | "num_running_reqs" | "running" => (&mut report.running, false),
            "kv_cache_usage_perc"
            | "gpu_cache_usage_perc"
            | "kv_cache_utilization"
            | "kv_cache"
            | "token_usage"
            | "kv_use" => (&mut report.kv_use, true),
            "gpu_utilization" | "gpu" | "gpu_use" => (&mut report.gpu_use, true),
            "gpu_memory_utilization" | "gpu_memory" | "gpu_memory_use" => {
                (&mut report.gpu_memory_use, true)
            }
            "pending" | "pending_requests" | "pending_weight" => (&mut report.pending, false),
            // The second spelling is that of protocol buffers in JSON.
            "application_utilization" | "applicationUtilization" => (&mut self.application, true),
            _ => return,
        };
        *field = Some(if is_share { value.min(1.0) } else { value });
    }

    fn into_report(self) -> Option<LoadReport> {
        let gpu_use = self.report.gpu_use.or(self.application);
        let report = LoadReport { gpu_use, ..self.report };
        (report != LoadReport::default()).then_some(report)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VLLM: LoadReport = LoadReport {
        queued: Some(3.0),
        running: None,
        kv_use: Some(0.4),
        gpu_use: None,
        gpu_memory_use: None,
        pending: None,
    };

    #[test]
    fn both_forms_of_vllm_are_read() {
        let text =
            "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3.0";
        assert_eq!(parse_orca(text), Some(VLLM));
        let json =
            r#"JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}"#;
        assert_eq!(parse_orca(json), Some(VLLM));
        assert_eq!(parse_orca(&format!("  {}", json.replace("JSON", "json"))), Some(VLLM));
    }

    #[test]
    fn utilizations_and_own_names_are_read() {
        let text = "TEXT cpu_utilization=0.3,mem_utilization=0.8,application_utilization=1.2,\
                    utilization.gpu_memory=0.7,named_metrics.pending=5,rps_fractional=10";
        let expected = LoadReport {
            gpu_use: Some(1.0),
            gpu_memory_use: Some(0.7),
            pending: Some(5.0),
            ..LoadReport::default()
        };
        assert_eq!(parse_orca(text), Some(expected));
        let json = r#"JSON {"applicationUtilization": 0.2, "utilization": {"gpu": 0.9}, "named_metrics": {"running": 2}}"#;
        let report = parse_orca(json).unwrap();
        assert_eq!((report.gpu_use, report.running), (Some(0.9), Some(2.0)));
    }

    #[test]
    fn what_tells_nothing_of_use_is_no_report() {
        for header in [
            "",
            "TEXT",
            "TEXT ",
            "TEXT cpu_utilization=0.3",
            "TEXT kv_use=NaN,queued=-1,running=inf,pending=1e99,gpu=",
            "JSON {",
            "JSON []",
            "JSON {\"a\": {\"b\": {\"queued\": 1}}}",
            "JSON {\"queued\": \"1\"}",
            "BIN queued=1",
            "queued=1",
        ] {
            assert_eq!(parse_orca(header), None, "{header}");
        }
        let long = format!("TEXT queued=1,{}", "x".repeat(HEADER_BYTES_MAX));
        assert_eq!(parse_orca(&long), None);
    }

    proptest! {
        #[test]
        fn any_header_is_read_without_a_panic_and_reports_are_in_range(header in "(TEXT|JSON)? ?.{0,60}") {
            if let Some(report) = parse_orca(&header) {
                prop_assert!(report.kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)));
            }
        }

        #[test]
        fn numbers_come_back_as_they_were_sent(queued in 0.0f32..1e9, share in 0.0f32..2.0) {
            let text = format!("TEXT named_metrics.queue_size={queued},utilization.gpu={share}");
            let report = parse_orca(&text).unwrap();
            prop_assert_eq!(report.queued, Some(queued));
            prop_assert_eq!(report.gpu_use, Some(share.min(1.0)));
        }
    }
}
