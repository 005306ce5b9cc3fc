# A task has shop_1, and another one waits for a profile that fits: for shop_1, then.
leasehold exec --profile shop_1 --worker worker-7 --task task_101 -- sh -c 'touch has; until [ -e over ]; do sleep 0.1; done' >has.log 2>&1 &
until [ -e has ]; do sleep 0.1; done
leasehold exec --label 'region:us-*' --wait 60s --worker worker-8 --task task_102 -- touch waited >waits.log 2>&1 &
until leasehold queue | grep -q task_102; do sleep 0.1; done
# the snippet
touch over
until [ -e waited ]; do sleep 0.1; done
