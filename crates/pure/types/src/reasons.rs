//! Declaration of reasons: one line has a reason's variant, name and meaning, for code, metrics, logs,
//! command line, console and documents.

/// Declares an enum of reasons, so that none can lack a name or a meaning. The doc comment of a
/// variant is its meaning for operators: one sentence, true for each request that gets the reason.
///
/// A reason that clients get as well has, after its name, the code of their error and its message.
#[macro_export]
macro_rules! reasons {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $reason:ident {
            $($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+
        }
    ) => {
        $(#[$attribute])*
        $visible enum $reason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $reason {
            /// All of them, in the order of their declaration.
            $visible const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name in logs, metrics, records and answers of the admin API.
            #[must_use]
            $visible const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the meaning for operators: a sentence without its full stop.
            #[must_use]
            $visible fn text(self) -> &'static str {
                $crate::sentence(match self {
                    $(Self::$variant => concat!($($doc),+),)+
                })
            }
        }
    };
    (
        $(#[$attribute:meta])*
        $visible:vis enum $reason:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident = $name:literal, $code:literal $message:literal;
            )+
        }
    ) => {
        $crate::reasons! {
            $(#[$attribute])*
            $visible enum $reason {
                $($(#[doc = $doc])+ $variant = $name;)+
            }
        }

        impl $reason {
            /// Returns the code of the error that the client gets, which has the status.
            #[must_use]
            $visible const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }

            /// Returns the message for the client.
            #[must_use]
            $visible const fn message(self) -> &'static str {
                match self {
                    $(Self::$variant => $message,)+
                }
            }
        }
    };
}

/// Returns a doc comment as a sentence without its full stop.
#[must_use]
pub fn sentence(doc: &'static str) -> &'static str {
    doc.trim().trim_end_matches('.')
}

/// Returns a sentence as it continues another one, e.g. after a colon: with a small first letter.
#[must_use]
pub fn continued(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    reasons! {
        /// Weather of a day.
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Weather {
            /// The sun shines, and
            /// no cloud is seen.
            Fair = "fair", "go" "go out";
            /// It rains.
            Wet = "wet", "stay" "stay at home";
        }
    }

    #[test]
    fn a_declaration_gives_names_meanings_and_what_clients_get() {
        assert_eq!(Weather::ALL, [Weather::Fair, Weather::Wet]);
        assert_eq!(Weather::ALL.map(Weather::name), ["fair", "wet"]);
        assert_eq!(
            Weather::ALL.map(Weather::text),
            ["The sun shines, and no cloud is seen", "It rains"]
        );
        assert_eq!(Weather::ALL.map(Weather::code), ["go", "stay"]);
        assert_eq!(Weather::ALL.map(Weather::message), ["go out", "stay at home"]);
    }

    #[test]
    fn a_sentence_continues_another_one() {
        assert_eq!(continued("It rains"), "it rains");
        assert_eq!(continued(""), "");
    }
}
