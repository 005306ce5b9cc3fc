# A task that has a profile, for as long as the block takes.
leasehold exec --profile shop_018 --create --worker worker-7 --task task_101 -- sh -c 'touch held; until [ -e over ]; do sleep 0.1; done' >held.log 2>&1 &
until [ -e held ]; do sleep 0.1; done
# the snippet
touch over
