-- Queries over a fleet of recordings, for DuckDB

-- Export the recordings of all ranks and runs to one folder, and query:
--     leaktrace export *.ltrace --to parquet -o fleet
--     leaktrace help fleet | duckdb
--
-- The tables are fleet/run=NAME/rank=N/TABLE.parquet, where TABLE is
-- recordings, findings, steps, sites, cohorts or events. On Spark the
-- same queries run with a view in the place of each path:
--     spark.read.option("basePath", "fleet")
--         .parquet("fleet/*/*/sites.parquet")
--         .createOrReplaceTempView("sites")

-- 1. What leaks: one row per cause and run, how many of the run's ranks
--    have it, and how much it grows.
WITH runs AS (
    SELECT run, count(DISTINCT rank) AS of_ranks
    FROM 'fleet/*/*/recordings.parquet' GROUP BY run
)
SELECT run, kind, file, line, function,
       count(DISTINCT rank) AS ranks, max(of_ranks) AS of_ranks,
       min(growth_bytes_per_step) AS least_per_step,
       max(growth_bytes_per_step) AS most_per_step,
       min(held_by) AS held_by
FROM 'fleet/*/*/findings.parquet' JOIN runs USING (run)
WHERE kind IN ('leak', 'growing')
GROUP BY run, kind, file, line, function
ORDER BY most_per_step DESC;

-- 2. Leaks without a verdict: lines whose blocks of most steps are
--    still alive, long after those steps ended.
WITH runs AS (
    SELECT run, rank, max(step) AS steps
    FROM 'fleet/*/*/steps.parquet' GROUP BY run, rank
),
kept AS (
    SELECT run, rank, site, count(*) AS cohorts,
           max(steps) AS steps, min(alloc_step) AS oldest_step,
           median(live_bytes) AS bytes_per_step,
           sum(live_bytes) AS live_bytes
    FROM 'fleet/*/*/cohorts.parquet' JOIN runs USING (run, rank)
    WHERE alloc_step > greatest(5, 0.1 * steps)
      AND alloc_step <= steps - 5
    GROUP BY run, rank, site
)
SELECT run, rank, file, line, function, layer, kept.cohorts,
       kept.oldest_step, kept.bytes_per_step, kept.live_bytes
FROM kept JOIN 'fleet/*/*/sites.parquet' USING (run, rank, site)
WHERE kept.cohorts
      >= 0.5 * (steps - 5 - greatest(5, floor(0.1 * steps)))
ORDER BY kept.live_bytes DESC;

-- 3. What a change brought in: how much each line grew, against the
--    first run of the same program.
WITH lines AS (
    SELECT split_part(run, '-', 1) AS program, run, file, line,
           function, sum(growth_bytes) AS growth
    FROM 'fleet/*/*/sites.parquet'
    GROUP BY split_part(run, '-', 1), run, file, line, function
),
firsts AS (
    SELECT program, min(run) AS run FROM lines GROUP BY program
),
base AS (SELECT lines.* FROM lines JOIN firsts USING (program, run))
SELECT l.run, l.file, l.line, l.function,
       coalesce(base.growth, 0) AS before, l.growth AS after
FROM lines l
JOIN firsts ON firsts.program = l.program AND firsts.run <> l.run
LEFT JOIN base ON base.program = l.program AND base.file = l.file
     AND base.line = l.line AND base.function = l.function
WHERE l.growth > coalesce(base.growth, 0)
ORDER BY l.growth - coalesce(base.growth, 0) DESC;
