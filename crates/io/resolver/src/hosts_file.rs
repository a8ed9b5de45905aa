//! The hosts file.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names and addresses of a hosts file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostsFile(BTreeMap<String, Vec<IpAddr>>);

impl HostsFile {
    /// Reads the text of the file; lines that are not as they should be are left out.
    pub(crate) fn read(text: &str) -> Self {
        let mut names: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words {
                let addresses = names.entry(normal(name)).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Self(names)
    }

    /// Returns the addresses of a host; `None` if the file does not have its name. `localhost` and the
    /// names below it are this machine, whatever the file lacks (RFC 6761, section 6.3).
    pub(crate) fn addresses(&self, host: &str) -> Option<Vec<IpAddr>> {
        let name = normal(host);
        let found = self.0.get(&name).cloned();
        found.or_else(|| {
            let is_local = name == "localhost" || name.ends_with(".localhost");
            is_local.then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
        })
    }
}

fn normal(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, name: &str) -> Option<Vec<String>> {
        let found = HostsFile::read(text).addresses(name);
        found.map(|found| found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_name_has_the_addresses_of_all_its_lines() {
        let text = "\u{feff}# comment\n10.0.0.1\tgpu gpu.test # the first\n\n2001:db8::1 GPU.test gpu.test\n";
        assert_eq!(of(text, "gpu"), Some(vec!["10.0.0.1".to_owned()]));
        let both = Some(vec!["10.0.0.1".to_owned(), "2001:db8::1".to_owned()]);
        for name in ["gpu.test", "gpu.test.", "Gpu.Test"] {
            assert_eq!(of(text, name), both, "{name}");
        }
        assert_eq!(of(text, "gpu.tes"), None);
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        for text in
            ["", "gpu 10.0.0.1", "10.0.0.1", "10.0.0.1 # gpu", "10.0.0.256 gpu", "fe80::1%lo gpu"]
        {
            assert_eq!(of(text, "gpu"), None, "{text:?}");
        }
    }

    #[test]
    fn localhost_is_this_machine_unless_the_file_says_otherwise() {
        let both = Some(vec!["127.0.0.1".to_owned(), "::1".to_owned()]);
        for name in ["localhost", "LOCALHOST.", "a.localhost"] {
            assert_eq!(of("", name), both, "{name}");
        }
        assert_eq!(of("127.0.0.1 localhost", "localhost"), Some(vec!["127.0.0.1".to_owned()]));
    }
}
