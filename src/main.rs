mod trace;
fn main() {}
