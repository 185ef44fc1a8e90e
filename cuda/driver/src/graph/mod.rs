//! Graphs: nodes, edges and the calls on them.

pub mod graphs;
pub mod nodes;
