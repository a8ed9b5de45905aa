//! Usage reports of streams: servers that give them, and servers that are asked for them.

use spillway_protocol::UsageWish;

/// Usage reports that a server gives in its streams when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageReports {
    /// None, as far as is known. A server with a strict schema refuses requests that ask.
    #[default]
    None,
    /// A report at the end of the stream, by `include_usage`.
    AtEnd,
    /// A report in every event, by `continuous_usage_stats`.
    Throughout,
}

/// Servers that a route asks for the usage of streams whose client does not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InjectUsage {
    /// None.
    Never,
    /// Servers of a kind that is known to report usage.
    #[default]
    Auto,
    /// All of them.
    Always,
}

/// Usage that the node of a client wants of one stream, from whatever server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedUsage {
    /// Servers that are asked.
    pub inject: InjectUsage,
    /// True if the stream may be continued at another replica, for which the usage so far has to be
    /// known at any time. Servers that are known to report usage are then asked whatever `inject`
    /// is.
    pub is_followed: bool,
}

impl UsageReports {
    /// All values, the fewest reports first.
    const ALL: [Self; 3] = [Self::None, Self::AtEnd, Self::Throughout];

    /// Returns the value of a number made by `as u8`; the greatest one for any other number.
    pub(crate) fn of_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Self::Throughout)
    }

    /// Returns the wish for these reports.
    #[must_use]
    pub fn wish(self) -> UsageWish {
        match self {
            Self::None => UsageWish::AsSent,
            Self::AtEnd => UsageWish::AtEnd,
            Self::Throughout => UsageWish::Throughout,
        }
    }
}

impl WantedUsage {
    /// Returns what is wanted of a stream; `None` if no server is asked.
    #[must_use]
    pub fn new(inject: InjectUsage, is_followed: bool) -> Option<Self> {
        (inject != InjectUsage::Never || is_followed).then_some(Self { inject, is_followed })
    }

    /// Returns the greatest wish of all servers.
    #[must_use]
    pub fn greatest(self) -> UsageWish {
        self.of_server(UsageReports::Throughout, UsageReports::Throughout)
    }

    /// Returns the wish for a server that gives such reports, and accepts no more than `limit`.
    #[must_use]
    pub fn of_server(self, reports: UsageReports, limit: UsageReports) -> UsageWish {
        let useful = if self.is_followed { UsageReports::Throughout } else { UsageReports::AtEnd };
        let by_kind = reports.min(useful);
        let asked = match self.inject {
            InjectUsage::Never if !self.is_followed => UsageReports::None,
            InjectUsage::Never | InjectUsage::Auto => by_kind,
            InjectUsage::Always => by_kind.max(UsageReports::AtEnd),
        };
        asked.min(limit).wish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_by_its_kind_and_by_the_setting() {
        use InjectUsage::{Always, Auto, Never};
        use UsageReports::{AtEnd, None, Throughout};
        let plain = |inject| WantedUsage { inject, is_followed: false };
        let followed = |inject| WantedUsage { inject, is_followed: true };
        for (wanted, of_none, of_at_end, of_throughout) in [
            (plain(Never), UsageWish::AsSent, UsageWish::AsSent, UsageWish::AsSent),
            (plain(Auto), UsageWish::AsSent, UsageWish::AtEnd, UsageWish::AtEnd),
            (plain(Always), UsageWish::AtEnd, UsageWish::AtEnd, UsageWish::AtEnd),
            (followed(Never), UsageWish::AsSent, UsageWish::AtEnd, UsageWish::Throughout),
            (followed(Auto), UsageWish::AsSent, UsageWish::AtEnd, UsageWish::Throughout),
            (followed(Always), UsageWish::AtEnd, UsageWish::AtEnd, UsageWish::Throughout),
        ] {
            let asked = [None, AtEnd, Throughout].map(|it| wanted.of_server(it, Throughout));
            assert_eq!(asked, [of_none, of_at_end, of_throughout], "{wanted:?}");
            assert_eq!(wanted.greatest(), of_throughout, "{wanted:?}");
            for reports in UsageReports::ALL {
                assert_eq!(wanted.of_server(reports, None), UsageWish::AsSent, "{wanted:?}");
                assert!(wanted.of_server(reports, AtEnd) <= UsageWish::AtEnd, "{wanted:?}");
            }
        }
        assert_eq!(WantedUsage::new(Never, false), Option::None);
        assert_eq!(WantedUsage::new(Never, true), Some(followed(Never)));
    }

    #[test]
    fn a_value_is_found_again_by_its_number() {
        for reports in UsageReports::ALL {
            assert_eq!(UsageReports::of_number(reports as u8), reports);
        }
        assert_eq!(UsageReports::of_number(9), UsageReports::Throughout);
    }
}
