//! The JSON schema of a report, derived from its model. Only the program has it (feature `schema`).

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::{Report, SCHEMA};
use crate::ledger::verdict::Kind;

impl Report {
    /// Returns the schema of [`Report::to_json`], as indented JSON with a line end.
    pub fn json_schema() -> String {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let mut schema = generator.into_root_schema_for::<Report>();
        schema.insert("$id".to_owned(), SCHEMA.into());
        format!("{:#}\n", schema.to_value())
    }
}

/// Restricts the kinds of `findings`.
pub fn of_findings(schema: &mut Schema) {
    restrict(schema, &super::suppress::KINDS);
}

/// Restricts the kinds of `non_leaks`.
pub fn of_non_leaks(schema: &mut Schema) {
    use Kind::{Cache, Doubling, Gathered, LargerInputs, Periodic, Plateau, ReservedGrowth, Spike, WarmUp};
    restrict(
        schema,
        &[WarmUp, Plateau, Cache, LargerInputs, Doubling, Gathered, Spike, ReservedGrowth, Periodic],
    );
}

fn restrict(schema: &mut Schema, kinds: &[Kind]) {
    let names: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
    if let Some(items) = schema.get_mut("items").and_then(|items| items.as_object_mut()) {
        items.insert("properties".to_owned(), serde_json::json!({ "kind": { "enum": names } }));
    }
}
