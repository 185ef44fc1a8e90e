//! Which opcodes of CPython jump, and where to: as much of each version's bytecode as the shape of its loops
//! needs. Numbers only; taken from the `opcode` and `dis` modules of the interpreters themselves, which
//! `tests.rs` compares with; `scripts/dev/opcode-table` prints a version's.
//!
//! From 3.11 on the bytes in memory are not those of the compiler: opcodes are specialised while they run,
//! and from 3.12 on instrumented. Every such form has its own number here and flows as the one it stands for.
//! Free-threaded builds have the same numbers.

use Flow::*;
use Stores::*;

/// How control goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next.
    Next,
    /// `FOR_ITER`: to the next, or forward out of the loop.
    For,
    Forward,
    ForwardIf,
    Backward,
    BackwardIf,
    /// `JUMP_BACKWARD_NO_INTERRUPT`: waits for an awaitable, which is no loop of the program.
    Spin,
    Absolute,
    AbsoluteIf,
    /// `SEND`: to the next, or forward; a generator may stand still here.
    Send,
    /// Nowhere: a return, a raise.
    End,
    /// To the next; a generator may stand still here.
    Yield,
    /// `EXTENDED_ARG`
    Extended,
    /// `LIST_APPEND` and its like: what makes a loop a comprehension.
    Append,
    /// `CALL_FUNCTION_EX`: what a wrapper hands its arguments on with.
    Spread,
    /// `GET_ANEXT`: with it `async for` begins to fetch its next item.
    Anext,
}

/// What an instruction puts into a local variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    Nothing,
    /// `STORE_FAST`, and what 3.11 and 3.12 join with what follows it.
    One,
    /// `STORE_FAST_LOAD_FAST`: the variable is the upper half of the argument.
    Upper,
    /// `STORE_FAST_STORE_FAST`: the upper half, then the lower.
    Both,
}

/// The opcodes of one version.
#[derive(Debug)]
pub(super) struct Opcodes {
    flow: &'static [(Flow, &'static [u8])],
    stores: &'static [(Stores, &'static [u8])],
    /// How many inline cache entries follow: (entries, opcodes from, to).
    caches: &'static [(u8, &'static [(u8, u8)])],
    /// Numbers that are no opcode, or hide another one (an instrumented line, an executor).
    unknown: &'static [(u8, u8)],
}

/// What the numbers mean, as one table.
#[derive(Debug)]
pub(super) struct Meanings([Option<(Flow, u8)>; 256], &'static Opcodes);

impl Meanings {
    /// Of a release of CPython 3.`minor`; `None` for one whose opcodes are not known here.
    pub fn of(minor: u32) -> Option<Meanings> {
        let opcodes = match minor {
            8 => &V3_8,
            9 => &V3_9,
            10 => &V3_10,
            11 => &V3_11,
            12 => &V3_12,
            13 => &V3_13,
            14 => &V3_14,
            15 => &V3_15,
            _ => return None,
        };
        let mut table = [Some((Next, 0)); 256];
        for &(flow, numbers) in opcodes.flow {
            for &number in numbers {
                table[usize::from(number)] = Some((flow, 0));
            }
        }
        for &(entries, ranges) in opcodes.caches {
            for &(from, to) in ranges {
                for (_, caches) in table[usize::from(from)..=usize::from(to)].iter_mut().flatten() {
                    *caches = entries;
                }
            }
        }
        for &(from, to) in opcodes.unknown {
            table[usize::from(from)..=usize::from(to)].fill(None);
        }
        Some(Meanings(table, opcodes))
    }

    /// How an opcode flows, and its inline cache entries.
    pub fn get(&self, opcode: u8) -> Option<(Flow, u8)> {
        self.0[usize::from(opcode)]
    }

    pub fn stores(&self, opcode: u8) -> Stores {
        let all = self.1.stores.iter();
        all.copied()
            .find(|(_, numbers)| numbers.contains(&opcode))
            .map_or(Stores::Nothing, |(stores, _)| stores)
    }
}

const V3_8: Opcodes = Opcodes {
    flow: &[
        (For, &[93]),
        (Forward, &[110]),
        (ForwardIf, &[122, 143, 154, 162]),
        (Absolute, &[113]),
        (AbsoluteIf, &[111, 112, 114, 115]),
        (End, &[83, 130]),
        (Yield, &[72, 86]),
        (Extended, &[144]),
        (Append, &[145, 146, 147]),
        (Spread, &[142]),
        (Anext, &[51]),
    ],
    stores: &[(One, &[125])],
    caches: &[],
    unknown: &[
        (0, 0),
        (7, 8),
        (13, 14),
        (18, 18),
        (21, 21),
        (30, 49),
        (58, 58),
        (74, 74),
        (80, 80),
        (99, 99),
        (117, 121),
        (123, 123),
        (127, 129),
        (134, 134),
        (139, 140),
        (159, 159),
        (164, 255),
    ],
};

const V3_9: Opcodes = Opcodes {
    flow: &[
        (For, &[93]),
        (Forward, &[110]),
        (ForwardIf, &[122, 143, 154]),
        (Absolute, &[113]),
        (AbsoluteIf, &[111, 112, 114, 115, 121]),
        (End, &[48, 83, 130]),
        (Yield, &[72, 86]),
        (Extended, &[144]),
        (Append, &[145, 146, 147]),
        (Spread, &[142]),
        (Anext, &[51]),
    ],
    stores: &[(One, &[125])],
    caches: &[],
    unknown: &[
        (0, 0),
        (7, 8),
        (13, 14),
        (18, 18),
        (21, 21),
        (30, 47),
        (53, 53),
        (58, 58),
        (80, 81),
        (88, 88),
        (99, 99),
        (119, 120),
        (123, 123),
        (127, 129),
        (134, 134),
        (139, 140),
        (149, 153),
        (158, 159),
        (166, 255),
    ],
};

const V3_10: Opcodes = Opcodes {
    flow: &[
        (For, &[93]),
        (Forward, &[110]),
        (ForwardIf, &[122, 143, 154]),
        (Absolute, &[113]),
        (AbsoluteIf, &[111, 112, 114, 115, 121]),
        (End, &[83, 119, 130]),
        (Yield, &[72, 86]),
        (Extended, &[144]),
        (Append, &[145, 146, 147]),
        (Spread, &[142]),
        (Anext, &[51]),
    ],
    stores: &[(One, &[125])],
    caches: &[],
    unknown: &[
        (0, 0),
        (7, 8),
        (13, 14),
        (18, 18),
        (21, 21),
        (35, 48),
        (53, 53),
        (58, 58),
        (80, 81),
        (88, 88),
        (120, 120),
        (123, 123),
        (127, 128),
        (134, 134),
        (139, 140),
        (149, 151),
        (153, 153),
        (158, 159),
        (166, 255),
    ],
};

const V3_11: Opcodes = Opcodes {
    flow: &[
        (For, &[93]),
        (Forward, &[110]),
        (ForwardIf, &[111, 112, 114, 115, 128, 129]),
        (Backward, &[38, 140]),
        (BackwardIf, &[173, 174, 175, 176]),
        (Spin, &[134]),
        (Send, &[123]),
        (End, &[83, 119, 130]),
        (Yield, &[86, 150, 151]),
        (Extended, &[34, 144]),
        (Append, &[145, 146, 147]),
        (Spread, &[142]),
        (Anext, &[51]),
    ],
    stores: &[(One, &[125, 161, 167])],
    caches: &[
        (
            1,
            &[
                (3, 8),
                (13, 14),
                (16, 16),
                (60, 60),
                (64, 67),
                (72, 73),
                (76, 81),
                (92, 92),
                (113, 113),
                (121, 122),
                (127, 127),
                (141, 141),
                (143, 143),
                (166, 166),
                (168, 170),
                (177, 180),
            ],
        ),
        (2, &[(26, 29), (107, 107)]),
        (4, &[(17, 25), (39, 43), (95, 95), (106, 106), (153, 154), (158, 159), (171, 171)]),
        (5, &[(47, 48), (55, 55), (116, 116)]),
        (10, &[(56, 59), (62, 63), (160, 160)]),
    ],
    unknown: &[(0, 0), (181, 255)],
};

const V3_12: Opcodes = Opcodes {
    flow: &[
        (For, &[62, 63, 64, 65, 93, 248]),
        (Forward, &[110, 245]),
        (ForwardIf, &[114, 115, 128, 129, 238, 239, 249, 250]),
        (Backward, &[140, 246]),
        (Spin, &[134]),
        (Send, &[123, 168]),
        (End, &[3, 83, 119, 121, 130, 242, 247]),
        (Yield, &[150, 151, 240, 243]),
        (Extended, &[144]),
        (Append, &[145, 146, 147]),
        (Spread, &[142, 244]),
        (Anext, &[51]),
    ],
    stores: &[(One, &[125, 154, 158])],
    caches: &[
        (
            1,
            &[
                (6, 8),
                (10, 10),
                (13, 14),
                (16, 16),
                (18, 22),
                (25, 25),
                (57, 60),
                (62, 67),
                (92, 93),
                (107, 107),
                (122, 123),
                (141, 141),
                (159, 161),
                (166, 168),
                (237, 237),
                (248, 248),
            ],
        ),
        (3, &[(23, 24), (28, 29), (34, 34), (38, 48), (56, 56), (171, 171), (241, 241)]),
        (4, &[(95, 95), (111, 113), (116, 116), (148, 148), (153, 153)]),
        (9, &[(70, 70), (72, 73), (76, 82), (106, 106)]),
    ],
    unknown: &[(0, 0), (17, 17), (169, 170), (177, 236), (253, 255)],
};

const V3_13: Opcodes = Opcodes {
    flow: &[
        (For, &[72, 187, 188, 189, 190, 243]),
        (Forward, &[79, 248]),
        (ForwardIf, &[97, 98, 99, 100, 250, 251, 252, 253]),
        (Backward, &[77, 249]),
        (Spin, &[78]),
        (Send, &[104, 208]),
        (End, &[22, 36, 101, 102, 103, 239, 240]),
        (Yield, &[118, 149, 207, 236, 241]),
        (Extended, &[71]),
        (Append, &[80, 95, 105]),
        (Spread, &[54, 246]),
        (Anext, &[18]),
    ],
    stores: &[(One, &[110]), (Upper, &[111]), (Both, &[112])],
    caches: &[
        (
            1,
            &[
                (3, 3),
                (5, 5),
                (39, 39),
                (45, 45),
                (58, 59),
                (72, 72),
                (77, 77),
                (93, 93),
                (97, 100),
                (104, 104),
                (117, 117),
                (150, 161),
                (182, 190),
                (205, 206),
                (208, 208),
                (212, 213),
                (220, 222),
                (242, 243),
                (249, 253),
            ],
        ),
        (3, &[(40, 40), (53, 53), (162, 181), (214, 219), (244, 244)]),
        (4, &[(91, 91), (108, 108), (203, 204), (209, 211)]),
        (9, &[(82, 82), (191, 202)]),
    ],
    unknown: &[(0, 0), (17, 17), (70, 70), (119, 148), (223, 235), (247, 247), (254, 255)],
};

const V3_14: Opcodes = Opcodes {
    flow: &[
        (For, &[70, 171, 172, 173, 174, 237]),
        (Forward, &[77, 239]),
        (ForwardIf, &[100, 101, 102, 103, 241, 242, 243, 244]),
        (Backward, &[75, 175, 176, 253]),
        (Spin, &[76]),
        (Send, &[106, 197]),
        (End, &[20, 35, 104, 105, 246]),
        (Yield, &[120, 128, 196, 245, 247]),
        (Extended, &[69]),
        (Append, &[78, 98, 107]),
        (Spread, &[4, 252]),
        (Anext, &[15]),
    ],
    stores: &[(One, &[112]), (Upper, &[113]), (Both, &[114])],
    caches: &[
        (
            1,
            &[
                (38, 38),
                (56, 57),
                (70, 70),
                (75, 75),
                (96, 96),
                (100, 103),
                (106, 106),
                (119, 119),
                (166, 176),
                (194, 195),
                (197, 197),
                (201, 202),
                (209, 211),
                (237, 237),
                (241, 244),
                (249, 249),
                (253, 253),
            ],
        ),
        (3, &[(39, 39), (52, 52), (55, 55), (143, 165), (203, 208), (250, 251)]),
        (4, &[(92, 92), (110, 110), (192, 193), (198, 200)]),
        (5, &[(3, 3), (44, 44), (129, 142)]),
        (9, &[(80, 80), (177, 189)]),
    ],
    unknown: &[(0, 0), (17, 17), (121, 127), (212, 233), (238, 238), (254, 255)],
};

const V3_15: Opcodes = Opcodes {
    flow: &[
        (For, &[68, 174, 175, 176, 177, 178, 236]),
        (Forward, &[76, 238]),
        (ForwardIf, &[99, 100, 101, 102, 240, 241, 242, 243]),
        (Backward, &[74, 181, 182, 252]),
        (Spin, &[75]),
        (Send, &[105, 202, 203, 204]),
        (End, &[18, 33, 103, 104, 245]),
        (Yield, &[119, 128, 200, 201, 244, 246]),
        (Extended, &[67]),
        (Append, &[77, 97, 106]),
        (Spread, &[4, 151, 152, 251]),
        (Anext, &[15]),
    ],
    stores: &[(One, &[111]), (Upper, &[112]), (Both, &[113])],
    caches: &[
        (
            1,
            &[
                (4, 4),
                (36, 36),
                (54, 55),
                (68, 68),
                (70, 70),
                (74, 74),
                (95, 95),
                (99, 102),
                (105, 105),
                (118, 118),
                (128, 128),
                (151, 152),
                (169, 182),
                (198, 204),
                (208, 209),
                (216, 218),
                (236, 236),
                (240, 244),
                (248, 248),
                (251, 252),
            ],
        ),
        (3, &[(37, 37), (50, 50), (53, 53), (144, 150), (153, 168), (210, 215), (249, 250)]),
        (4, &[(91, 91), (109, 109), (196, 197), (205, 207)]),
        (5, &[(3, 3), (42, 42), (129, 143)]),
        (9, &[(79, 79), (183, 195)]),
    ],
    unknown: &[(0, 0), (17, 17), (120, 127), (219, 232), (237, 237), (253, 255)],
};
