//! The hand-written C bodies: what stands before the code of every library, and which functions a file
//! defines.

pub const PRELUDE: &str = include_str!("../bodies/prelude.h");

/// The name and the code of the library that has programs find device files.
pub const DEVICE_FILES: (&str, &str) = ("libsimgpu_files.so", include_str!("../bodies/device_files.c"));

/// The functions marked `SIM(type) name(` at the beginning of a line.
pub fn defined(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| {
        let (_type, rest) = line.strip_prefix("SIM(")?.split_once(") ")?;
        rest.split_once('(').map(|(name, _)| name)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_marked_functions_are_found() {
        let body =
            "SIM(int) one(void) { return 0; }\nstatic int two(void);\nSIM(const char *) three(int a) {\n";
        assert_eq!(super::defined(body).collect::<Vec<_>>(), ["one", "three"]);
    }
}
