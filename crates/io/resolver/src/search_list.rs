//! Names to ask for, where a name may be short.

use hickory_resolver::proto::rr::Name;

/// Domains that complete a short name, as `search` and `ndots` in resolv.conf set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SearchList {
    pub(crate) domains: Vec<Name>,
    /// Number of dots from which a name is first asked for as it stands.
    pub(crate) ndots: usize,
}

impl SearchList {
    /// Returns the whole names to ask for, in their order. A name that ends with a dot is whole.
    pub(crate) fn candidates(&self, name: &Name) -> Vec<Name> {
        if name.is_fqdn() {
            return vec![name.clone()];
        }
        // A name that gets too long can't exist.
        let completed = self.domains.iter().filter_map(|it| name.clone().append_domain(it).ok());
        let mut candidates: Vec<Name> = completed.map(whole).collect();
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let place = if dots >= self.ndots { 0 } else { candidates.len() };
        candidates.insert(place, whole(name.clone()));
        let mut seen = Vec::with_capacity(candidates.len());
        candidates.retain(|candidate| {
            let is_new = !seen.contains(candidate);
            seen.push(candidate.clone());
            is_new
        });
        candidates
    }
}

fn whole(mut name: Name) -> Name {
    name.set_fqdn(true);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::dns_name;

    fn candidates(domains: &[&str], ndots: usize, name: &str) -> Vec<String> {
        let domains = domains.iter().map(|domain| dns_name(domain).unwrap()).collect();
        let list = SearchList { domains, ndots };
        list.candidates(&dns_name(name).unwrap()).iter().map(Name::to_ascii).collect()
    }

    #[test]
    fn a_short_name_is_completed_first_and_a_long_one_last() {
        let domains = ["ns.svc.cluster.local", "svc.cluster.local."];
        assert_eq!(
            candidates(&domains, 1, "gpu"),
            ["gpu.ns.svc.cluster.local.", "gpu.svc.cluster.local.", "gpu."]
        );
        assert_eq!(
            candidates(&domains, 1, "gpu.example"),
            ["gpu.example.", "gpu.example.ns.svc.cluster.local.", "gpu.example.svc.cluster.local."]
        );
        assert_eq!(candidates(&domains, 5, "a.b.c.d").last().unwrap(), "a.b.c.d.");
        assert_eq!(candidates(&domains, 5, "a.b.c.d.e.f").first().unwrap(), "a.b.c.d.e.f.");
    }

    #[test]
    fn a_whole_name_is_asked_for_alone_and_none_twice() {
        assert_eq!(candidates(&["example"], 5, "gpu."), ["gpu."]);
        assert_eq!(candidates(&[], 1, "gpu"), ["gpu."]);
        assert_eq!(candidates(&["example", "example"], 1, "gpu"), ["gpu.example.", "gpu."]);
        let long = ["a".repeat(60).as_str(); 4].join(".");
        assert_eq!(candidates(&["too-long.example"], 1, &long).len(), 1);
    }
}
