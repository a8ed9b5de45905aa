//! Splits: names whose requests are divided among models.

use std::fmt;
use std::num::NonZero;

use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spillway_rollout::Rollout;
use spillway_types::{ArmName, ModelName, ModelVersion, SplitBy};

/// Time for which clients keep a split's cookie by default: 30 days.
pub const STICKY_MAX_AGE_S: NonZero<u32> = NonZero::new(30 * 24 * 3600).unwrap();

/// A name whose requests are divided among models.
///
/// A split without `by` and `sticky` has the bytes of wire version 1, which knew neither, and one
/// without a rollout those of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Arms of the split. Their weights make 1,000 together.
    pub arms: Vec<Arm>,
    /// Property of a request by which its arm is chosen: chance, if None while `sticky` is set. If
    /// both are None, both are those of the config file's split of this name.
    pub by: Option<SplitBy>,
    /// Cookie by which clients keep an arm that chance drew.
    pub sticky: Option<StickyArm>,
    /// Rollout of one of the arms, whose steps decide the shares instead of the weights.
    pub rollout: Option<Rollout>,
}

/// A cookie that remembers a client's arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StickyArm {
    /// Name of the cookie.
    pub cookie: String,
    /// Time for which clients keep the cookie, in seconds.
    pub max_age_s: NonZero<u32>,
}

/// One arm of a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the arm, unique in the split.
    pub name: ArmName,
    /// Model that serves the arm's requests.
    pub model: ModelName,
    /// Version of the model; None for any.
    pub version: Option<ModelVersion>,
    /// Share of the requests, in thousandths.
    pub weight_permille: u16,
}

impl Split {
    /// Returns true if the record itself decides how arms are chosen, and not the config file.
    #[must_use]
    pub fn chooses_arms(&self) -> bool {
        self.by.is_some() || self.sticky.is_some()
    }
}

/// Fields on the wire. Wire version 1 has the first one alone, version 2 the first three.
const FIELDS: &[&str] = &["arms", "by", "sticky", "rollout"];

/// Stands behind the arms of a split whose other fields follow, and tells by its weight which ones do. No command of wire version 1 has an arm of such a weight, so that the
/// log of an older cluster is read as it was written.
fn mark(has_rollout: bool) -> Arm {
    let (name, model) = (ArmName::from(""), ModelName::from(""));
    Arm { name, model, version: None, weight_permille: u16::MAX - u16::from(has_rollout) }
}

impl Serialize for Split {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let has_rollout = self.rollout.is_some();
        if !self.chooses_arms() && !has_rollout {
            let mut fields = serializer.serialize_struct("Split", 1)?;
            fields.serialize_field(FIELDS[0], &self.arms)?;
            return fields.end();
        }
        let arms: Vec<Arm> = self.arms.iter().cloned().chain([mark(has_rollout)]).collect();
        let length = FIELDS.len() - usize::from(!has_rollout);
        let mut fields = serializer.serialize_struct("Split", length)?;
        fields.serialize_field(FIELDS[0], &arms)?;
        fields.serialize_field(FIELDS[1], &self.by)?;
        fields.serialize_field(FIELDS[2], &self.sticky)?;
        if let Some(rollout) = &self.rollout {
            fields.serialize_field(FIELDS[3], rollout)?;
        }
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Split;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a split")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Split, A::Error> {
                let short = || A::Error::custom("a split ends early");
                let mut arms: Vec<Arm> = fields.next_element()?.ok_or_else(short)?;
                let has_rollout = arms.last() == Some(&mark(true));
                if !has_rollout && arms.last() != Some(&mark(false)) {
                    return Ok(Split { arms, ..Split::default() });
                }
                arms.pop();
                let by = fields.next_element()?.ok_or_else(short)?;
                let sticky = fields.next_element()?.ok_or_else(short)?;
                let rollout = has_rollout.then(|| fields.next_element()?.ok_or_else(short));
                Ok(Split { arms, by, sticky, rollout: rollout.transpose()? })
            }
        }

        deserializer.deserialize_struct("Split", FIELDS, Fields)
    }
}
