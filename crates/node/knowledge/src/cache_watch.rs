//! Reports of one replica's pages on its prefix cache, and the conclusions from them.

use spillway_replicas::CacheReport;

/// Tolerance in seconds between two readings of one process's start time: clocks are read with some
/// error.
const STARTED_ERROR_S: f64 = 1.0;

/// Conclusions from one report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Conclusions {
    /// True if the process is another one, or counts from zero again: its caches are empty.
    pub(crate) is_restarted: bool,
    /// Size of the cache in tokens, if that is news.
    pub(crate) tokens: Option<f64>,
    /// Tokens looked up and found since the last report.
    pub(crate) found: Option<PrefixCacheCounts>,
}

/// Tokens that a replica looked up in its prefix cache, and found there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PrefixCacheCounts {
    pub(crate) queries: f64,
    pub(crate) hits: f64,
}

/// Newest values of a replica's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CacheWatch(CacheReport);

impl CacheWatch {
    /// Records a report. A value that it lacks may be on another page.
    pub(crate) fn record(&mut self, report: &CacheReport) -> Conclusions {
        let before = self.0;
        // Counters only rise while a process lives.
        let fell = |now: Option<f64>, before: Option<f64>| {
            now.zip(before).is_some_and(|(now, before)| now < before)
        };
        let is_another = |(now, before): (f64, f64)| (now - before).abs() > STARTED_ERROR_S;
        let is_restarted = report.started_s.zip(before.started_s).is_some_and(is_another)
            || fell(report.queries, before.queries)
            || fell(report.hits, before.hits);
        let rose = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let found = (!is_restarted).then(|| {
            let queries = rose(report.queries, before.queries)?;
            let hits = rose(report.hits, before.hits)?;
            (queries > 0.0).then_some(PrefixCacheCounts { queries, hits: hits.min(queries) })
        });
        self.0 = CacheReport {
            tokens: report.tokens.or(before.tokens),
            queries: report.queries.or(before.queries),
            hits: report.hits.or(before.hits),
            started_s: report.started_s.or(before.started_s),
        };
        let tokens = report.tokens.filter(|tokens| before.tokens != Some(*tokens));
        Conclusions { is_restarted, tokens, found: found.flatten() }
    }

    /// Forgets the counts after the caches were found empty in another way: then new counts show
    /// nothing more.
    pub(crate) fn count_anew(&mut self) {
        (self.0.queries, self.0.hits) = (None, None);
    }

    /// Returns true if the pages contain the start time of the process: then nothing else has to be
    /// taken for a restart. Counts alone show a restart late, or never: SGLang's are on the page
    /// from the first reply on.
    pub(crate) fn tells_restarts(&self) -> bool {
        self.0.started_s.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(started_s: f64, queries: f64, hits: f64) -> CacheReport {
        CacheReport {
            tokens: Some(4_000.0),
            queries: Some(queries),
            hits: Some(hits),
            started_s: Some(started_s),
        }
    }

    #[test]
    fn a_first_report_tells_the_size_and_no_restart() {
        let mut watch = CacheWatch::default();
        assert!(!watch.tells_restarts());
        let first = watch.record(&report(100.0, 50.0, 20.0));
        assert_eq!(first, Conclusions { tokens: Some(4_000.0), ..Conclusions::default() });
        assert!(watch.tells_restarts());
        assert_eq!(watch.record(&report(100.0, 50.0, 20.0)), Conclusions::default(), "no news");
    }

    #[test]
    fn another_start_or_counters_that_fell_are_a_restart() {
        for after in [report(102.0, 60.0, 30.0), report(100.0, 3.0, 20.0), report(100.0, 60.0, 0.0)]
        {
            let mut watch = CacheWatch::default();
            watch.record(&report(100.0, 50.0, 20.0));
            let conclusions = watch.record(&after);
            assert!(conclusions.is_restarted && conclusions.found.is_none(), "{after:?}");
            assert!(!watch.record(&after).is_restarted, "told once");
        }
        let mut watch = CacheWatch::default();
        watch.record(&report(100.0, 50.0, 20.0));
        assert!(!watch.record(&report(100.4, 50.0, 20.0)).is_restarted, "an error of reading");
    }

    #[test]
    fn counts_that_begin_anew_after_a_restart_that_was_known_are_no_other_restart() {
        let counts = |queries, hits| CacheReport {
            queries: Some(queries),
            hits: Some(hits),
            ..CacheReport::default()
        };
        let mut watch = CacheWatch::default();
        watch.record(&counts(50.0, 20.0));
        assert!(!watch.tells_restarts(), "not before its first reply");
        watch.count_anew();
        assert_eq!(watch.record(&counts(9.0, 3.0)), Conclusions::default());
        assert_eq!(
            watch.record(&counts(12.0, 5.0)).found,
            Some(PrefixCacheCounts { queries: 3.0, hits: 2.0 })
        );
        assert!(watch.record(&counts(1.0, 0.0)).is_restarted);
    }

    #[test]
    fn what_was_found_is_counted_from_report_to_report() {
        let mut watch = CacheWatch::default();
        watch.record(&report(100.0, 50.0, 20.0));
        let found = watch.record(&report(100.0, 150.0, 90.0)).found;
        assert_eq!(found, Some(PrefixCacheCounts { queries: 100.0, hits: 70.0 }));
        let other_page = CacheReport { tokens: Some(1.0), ..CacheReport::default() };
        assert_eq!(watch.record(&other_page).tokens, Some(1.0));
        let found = watch.record(&report(100.0, 160.0, 120.0)).found;
        assert_eq!(
            found,
            Some(PrefixCacheCounts { queries: 10.0, hits: 10.0 }),
            "no more than was asked"
        );
    }
}
