//! Parts of the schema that follow from the place of a table, and not from its type.

use schemars::Schema;
use schemars::transform::Transform;

/// Description of the values of a map by names.
pub(crate) struct Values(pub(crate) &'static str);

/// Bounds of the weights of a map by names.
pub(crate) struct Weights;

impl Transform for Weights {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(values) = schema.get_mut("additionalProperties") {
            values["minimum"] = 1.into();
            values["maximum"] = 1_000.into();
        }
    }
}

impl Transform for Values {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(values) = schema.get_mut("additionalProperties") {
            values["description"] = self.0.into();
        }
    }
}

/// Keys that each table of a list must have, though the type of the table allows to leave them out:
/// the template of a discovery has neither name nor address.
pub(crate) struct Required(pub(crate) &'static [&'static str]);

impl Transform for Required {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(items) = schema.get_mut("items") {
            items["required"] = self.0.into();
        }
    }
}
