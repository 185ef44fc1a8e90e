//! Context variables: the interpreter's own state refers to the context of a thread, and a context has a
//! tree of tables from variables to their values.

use crate::python::heap::Heap;
use crate::python::memory::word;
use crate::python::offsets::{CONTEXT_VARIABLE_NAME, FLAG_HEAP_TYPE, OB_TYPE, TYPE_FLAGS};
use leaktrace_core::holders::{Node, Step};

impl Heap<'_> {
    /// Returns whether an object is a context of context variables.
    pub fn is_context(&self, object: Node) -> bool {
        // SAFETY: a living object and its type.
        let flags = unsafe { word(word(object, OB_TYPE), TYPE_FLAGS) };
        flags & FLAG_HEAP_TYPE == 0 && self.types.name(object) == "Context"
    }

    /// Returns the step from a node of a context's table to a variable's value: the variable lies before it.
    pub fn context_label(&mut self, table: Node, held: Node) -> Step {
        let mut parts = Vec::new();
        if let Some(info) = self.types.of(table) {
            self.types.traverse(table, &info, &mut parts);
        }
        let at = parts.iter().position(|&part| part == held);
        let variable = |part: Node| self.types.name(part) == "ContextVar";
        // They are visited from the last to the first, or the other way round.
        let near = at.map(|at| [parts.get(at + 1), at.checked_sub(1).and_then(|before| parts.get(before))]);
        match near.into_iter().flatten().flatten().copied().find(|&part| variable(part)) {
            // SAFETY: a living variable: its name is its first field.
            Some(variable) => match unsafe { word(variable, CONTEXT_VARIABLE_NAME) } {
                name if name != 0 && self.is_str(name) => {
                    Step::Named(format!("variable `{}`", self.text(name)))
                }
                _ => Step::Named("variable".into()),
            },
            None => Step::Through,
        }
    }
}
