//! Declaration of the terms of a cost.

/// Declares a cost, so that no term can lack a meaning: the doc comment of the field, which has the
/// name of the term and its unit.
macro_rules! terms {
    (
        $(#[$attribute:meta])*
        pub struct $cost:ident {
            $($(#[doc = $doc:literal])+ pub $term:ident: f32,)+
        }
    ) => {
        $(#[$attribute])*
        pub struct $cost {
            $($(#[doc = $doc])+ pub $term: f32,)+
        }

        impl $cost {
            /// Returns the name of each term, with its unit, and its meaning for operators: times
            /// come first, in chronological order.
            #[must_use]
            pub fn terms() -> Vec<(&'static str, &'static str)> {
                vec![$((stringify!($term), spillway_types::sentence(concat!($($doc),+)))),+]
            }
        }
    };
}
pub(crate) use terms;
