"""The changes of a table: which rows each snapshot added and removed, and which of them are one row's update.

    change_range -> change_planning -> change_tasks -> changed_rows -> netting -> change_scan

The driver plans from manifests alone. A task reads the rows of one data file. Rows of one snapshot are then
paired by their key.
"""
